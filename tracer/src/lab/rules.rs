//! kube-proxy's rules in iptables mode, as text for `iptables-restore --noflush`. Pure.
//!
//! The shape is kube-proxy's (pkg/proxy/iptables/proxier.go): the same chains in the same order with the
//! same matches and targets. Only the tails of the chain names are readable here, where kube-proxy has hashes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

/// What the rules of one node are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Its name within the namespace `default`.
    pub(crate) name: String,
    /// Its address and port in front of NAT.
    pub(crate) frontend: SocketAddr,
    /// The pod network of the node: traffic from elsewhere is masqueraded.
    pub(crate) pod_cidr: String,
}

/// The chains that stay, and the jumps to them from the kernel's own chains. To be restored once.
pub(crate) fn base() -> &'static str {
    "\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"
}

/// The rules that send the Service's new connections to `endpoints`, each with the same chance, and that
/// remove what was there for the endpoints of `before` that are gone. Without endpoints the Service is
/// rejected (ICMP port unreachable, so the client is refused).
pub(crate) fn sync(
    service: &Service,
    endpoints: &BTreeSet<SocketAddr>,
    before: &BTreeSet<SocketAddr>,
) -> String {
    let mut nat = String::from("*nat\n:KUBE-SERVICES - [0:0]\n");
    let mut filter = String::from("*filter\n:KUBE-SERVICES - [0:0]\n");
    let svc = format!("KUBE-SVC-{}", service.name.to_uppercase());
    let comment = format!("default/{}:http", service.name);
    let matches = format!(
        "-d {}/32 -p tcp -m tcp --dport {}",
        service.frontend.ip(),
        service.frontend.port()
    );
    let removed = |endpoint: &SocketAddr| !endpoints.contains(endpoint);

    // Declaring a chain makes it or, if it is there, empties it.
    if !(endpoints.is_empty() && before.is_empty()) {
        line(&mut nat, format_args!(":{svc} - [0:0]"));
    }
    for endpoint in endpoints.union(before) {
        line(&mut nat, format_args!(":{} - [0:0]", sep(endpoint)));
    }

    if endpoints.is_empty() {
        line(
            &mut filter,
            format_args!(
                "-A KUBE-SERVICES -m comment --comment \"{comment} has no endpoints\" {matches} -j REJECT"
            ),
        );
    } else {
        line(
            &mut nat,
            format_args!(
                "-A KUBE-SERVICES -m comment --comment \"{comment} cluster IP\" {matches} -j {svc}"
            ),
        );
        line(
            &mut nat,
            format_args!(
                "-A {svc} ! -s {} {matches} -m comment --comment \"{comment} cluster IP\" -j KUBE-MARK-MASQ",
                service.pod_cidr
            ),
        );
    }
    for (place, endpoint) in endpoints.iter().enumerate() {
        let left = endpoints.len() - place;
        let chance = match left {
            1 => String::new(),
            _ => format!(" -m statistic --mode random --probability {:.10}", 1.0 / left as f64),
        };
        line(
            &mut nat,
            format_args!(
                "-A {svc} -m comment --comment \"{comment} -> {endpoint}\"{chance} -j {}",
                sep(endpoint)
            ),
        );
    }
    for endpoint in endpoints {
        let chain = sep(endpoint);
        line(
            &mut nat,
            format_args!(
                "-A {chain} -s {}/32 -m comment --comment \"{comment}\" -j KUBE-MARK-MASQ",
                endpoint.ip()
            ),
        );
        line(
            &mut nat,
            format_args!(
                "-A {chain} -p tcp -m comment --comment \"{comment}\" -m tcp -j DNAT --to-destination {endpoint}"
            ),
        );
    }

    for endpoint in before.iter().filter(|endpoint| removed(endpoint)) {
        line(&mut nat, format_args!("-X {}", sep(endpoint)));
    }
    if endpoints.is_empty() && !before.is_empty() {
        line(&mut nat, format_args!("-X {svc}"));
    }
    nat + "COMMIT\n" + &filter + "COMMIT\n"
}

/// The chain of an endpoint. iptables allows names of 28 characters: enough for the lab's addresses.
fn sep(endpoint: &SocketAddr) -> String {
    format!("KUBE-SEP-{}", endpoint.to_string().replace(['.', ':'], "-"))
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::plan::{NODES, Node, POD_PORT, Plan};
    use super::*;
    use crate::sys::owner;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn service() -> Service {
        Service {
            name: "web".to_owned(),
            frontend: "10.100.96.10:80".parse().expect("an address"),
            pod_cidr: "10.100.1.0/24".to_owned(),
        }
    }

    fn set(endpoints: &[&str]) -> BTreeSet<SocketAddr> {
        endpoints.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn check(endpoints: &[&str], before: &[&str], expected: Expect) {
        expected.assert_eq(&sync(&service(), &set(endpoints), &set(before)));
    }

    #[test]
    fn without_endpoints_the_service_is_rejected() {
        check(
            &[],
            &[],
            expect![[r#"
                *nat
                :KUBE-SERVICES - [0:0]
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                -A KUBE-SERVICES -m comment --comment "default/web:http has no endpoints" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j REJECT
                COMMIT
            "#]],
        );
    }

    #[test]
    fn one_endpoint_needs_no_chance() {
        check(
            &["10.100.1.20:8080"],
            &[],
            expect![[r#"
                *nat
                :KUBE-SERVICES - [0:0]
                :KUBE-SVC-WEB - [0:0]
                :KUBE-SEP-10-100-1-20-8080 - [0:0]
                -A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-WEB
                -A KUBE-SVC-WEB ! -s 10.100.1.0/24 -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http cluster IP" -j KUBE-MARK-MASQ
                -A KUBE-SVC-WEB -m comment --comment "default/web:http -> 10.100.1.20:8080" -j KUBE-SEP-10-100-1-20-8080
                -A KUBE-SEP-10-100-1-20-8080 -s 10.100.1.20/32 -m comment --comment "default/web:http" -j KUBE-MARK-MASQ
                -A KUBE-SEP-10-100-1-20-8080 -p tcp -m comment --comment "default/web:http" -m tcp -j DNAT --to-destination 10.100.1.20:8080
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                COMMIT
            "#]],
        );
    }

    #[test]
    fn a_gone_endpoint_loses_its_chain() {
        let text = sync(
            &service(),
            &set(&["10.100.1.20:8080", "10.100.2.20:8080"]),
            &set(&["10.100.1.20:8080", "10.100.1.21:8080"]),
        );
        assert!(text.contains(":KUBE-SEP-10-100-1-21-8080 - [0:0]\n"));
        assert!(text.contains("-X KUBE-SEP-10-100-1-21-8080\nCOMMIT\n*filter"));
        assert!(!text.contains("-j KUBE-SEP-10-100-1-21-8080"));
    }

    #[test]
    fn the_last_endpoint_takes_the_chain_of_the_service_with_it() {
        check(
            &[],
            &["10.100.1.20:8080"],
            expect![[r#"
                *nat
                :KUBE-SERVICES - [0:0]
                :KUBE-SVC-WEB - [0:0]
                :KUBE-SEP-10-100-1-20-8080 - [0:0]
                -X KUBE-SEP-10-100-1-20-8080
                -X KUBE-SVC-WEB
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                -A KUBE-SERVICES -m comment --comment "default/web:http has no endpoints" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j REJECT
                COMMIT
            "#]],
        );
    }

    /// The chances as written, one for each endpoint.
    fn chances(text: &str) -> Vec<f64> {
        text.lines()
            .filter(|line| line.contains(" -j KUBE-SEP-"))
            .map(|line| match line.split_once("--probability ") {
                Some((_, rest)) => {
                    rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
                }
                None => 1.0,
            })
            .collect()
    }

    #[test]
    fn four_endpoints_during_a_surge() {
        let endpoints =
            set(&["10.100.1.20:8080", "10.100.1.21:8080", "10.100.2.20:8080", "10.100.2.21:8080"]);
        assert_eq!(
            chances(&sync(&service(), &endpoints, &set(&[]))),
            [0.25, 0.3333333333, 0.5, 1.0]
        );
    }

    proptest! {
        #[test]
        fn every_endpoint_has_the_same_chance(count in 1u8..40) {
            let endpoints = (0..count).map(|n| SocketAddr::from(([10, 163, 254, 200 + n], 8080))).collect();
            let mut reached = 1.0;
            for chance in chances(&sync(&service(), &endpoints, &BTreeSet::new())) {
                prop_assert!((reached * chance - 1.0 / f64::from(count)).abs() < 1e-8);
                reached *= 1.0 - chance;
            }
            prop_assert!(reached == 0.0);
        }

        #[test]
        fn chain_names_are_short_enough(index in 0..owner::INDEXES, node in 0..NODES, nth in any::<u32>()) {
            let address = Plan::new(index).pod(Node(node), nth);
            prop_assert!(sep(&SocketAddr::new(address.into(), POD_PORT)).len() <= 28);
        }
    }
}
