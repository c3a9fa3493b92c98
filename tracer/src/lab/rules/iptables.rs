//! kube-proxy's rules in iptables mode, for `iptables-restore --noflush` and its IPv6 sibling. Pure.
//!
//! The shape is kube-proxy's (pkg/proxy/iptables/proxier.go): the same chains in the same order with the
//! same matches and targets. Only the tails of the chain names are readable here, where kube-proxy has hashes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::{Service, TrafficPolicy, line};
use crate::lab::plan::NODE_PORT;

/// The chains that stay, and the jumps to them from the kernel's own chains.
pub(super) const BASE: &str = "\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
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
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
";

/// See [`super::ProxyMode::sync`].
pub(super) fn sync(
    service: &Service,
    endpoints: &BTreeSet<SocketAddr>,
    before: &BTreeSet<SocketAddr>,
) -> String {
    let mut nat = String::from("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n");
    let mut filter =
        String::from("*filter\n:KUBE-SERVICES - [0:0]\n:KUBE-EXTERNAL-SERVICES - [0:0]\n");
    let chains = Chains::new(service);
    let Chains { svc, .. } = &chains;
    let comment = service.label();
    let bits = service.plan.host_bits();
    let frontend = service.plan.service();
    let matches = format!("-d {}/{bits} -p tcp -m tcp --dport {}", frontend.ip(), frontend.port());

    // Declaring a chain makes it or, if it is there, empties it.
    if !(endpoints.is_empty() && before.is_empty()) {
        chains.names().for_each(|chain| line(&mut nat, format_args!(":{chain} - [0:0]")));
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
                service.plan.pod_cidr(service.node)
            ),
        );
    }
    line(
        &mut nat,
        format_args!(
            "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"
        ),
    );
    choose(&mut nat, svc, &comment, &endpoints.iter().copied().collect::<Vec<_>>());
    for endpoint in endpoints {
        let chain = sep(endpoint);
        line(
            &mut nat,
            format_args!(
                "-A {chain} -s {}/{bits} -m comment --comment \"{comment}\" -j KUBE-MARK-MASQ",
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
    if let Some(policy) = service.node_port {
        external(&mut nat, &mut filter, service, policy, &chains, endpoints);
    }

    for endpoint in before.difference(endpoints) {
        line(&mut nat, format_args!("-X {}", sep(endpoint)));
    }
    if endpoints.is_empty() && !before.is_empty() {
        chains.names().for_each(|chain| line(&mut nat, format_args!("-X {chain}")));
    }
    nat + "COMMIT\n" + &filter + "COMMIT\n"
}

/// The chains of a Service.
struct Chains {
    svc: String,
    /// For its port on the nodes.
    ext: Option<String>,
    /// For its endpoints on this node, where only these may be used.
    svl: Option<String>,
}

impl Chains {
    fn new(service: &Service) -> Chains {
        let name = service.name.to_uppercase();
        let local = service.node_port == Some(TrafficPolicy::Local);
        Chains {
            svc: format!("KUBE-SVC-{name}"),
            ext: service.node_port.map(|_| format!("KUBE-EXT-{name}")),
            svl: local.then(|| format!("KUBE-SVL-{name}")),
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.svc).chain(&self.ext).chain(&self.svl)
    }
}

/// The rules that choose one of the endpoints, each with the same chance.
fn choose(nat: &mut String, chain: &str, comment: &str, endpoints: &[SocketAddr]) {
    for (place, endpoint) in endpoints.iter().enumerate() {
        let chance = match endpoints.len() - place {
            1 => String::new(),
            left => format!(" -m statistic --mode random --probability {:.10}", 1.0 / left as f64),
        };
        line(
            nat,
            format_args!(
                "-A {chain} -m comment --comment \"{comment} -> {endpoint}\"{chance} -j {}",
                sep(endpoint)
            ),
        );
    }
}

/// The rules for the Service's port on the nodes.
fn external(
    nat: &mut String,
    filter: &mut String,
    service: &Service,
    policy: TrafficPolicy,
    chains: &Chains,
    endpoints: &BTreeSet<SocketAddr>,
) {
    let comment = service.label();
    let mut unreachable = |what: &str, target: &str| {
        line(
            filter,
            format_args!(
                "-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment \"{comment} has no {what}\" -m addrtype --dst-type LOCAL -m tcp --dport {NODE_PORT} -j {target}"
            ),
        );
    };
    if endpoints.is_empty() {
        return unreachable("endpoints", "REJECT");
    }
    let Chains { svc, ext, svl } = chains;
    let ext = ext.as_deref().unwrap_or_default();
    line(
        nat,
        format_args!(
            "-A KUBE-NODEPORTS -p tcp -m comment --comment \"{comment}\" -m tcp --dport {NODE_PORT} -j {ext}"
        ),
    );
    match (policy, svl) {
        (TrafficPolicy::Local, Some(svl)) => {
            let cidr = service.plan.pod_cidr(service.node);
            line(
                nat,
                format_args!(
                    "-A {ext} -s {cidr} -m comment --comment \"pod traffic for {comment} external destinations\" -j {svc}"
                ),
            );
            for (what, target) in [("masquerade", "KUBE-MARK-MASQ"), ("route", svc)] {
                line(
                    nat,
                    format_args!(
                        "-A {ext} -m comment --comment \"{what} LOCAL traffic for {comment} external destinations\" -m addrtype --src-type LOCAL -j {target}"
                    ),
                );
            }
            line(nat, format_args!("-A {ext} -j {svl}"));
            let local = service.local(endpoints);
            if local.is_empty() {
                unreachable("local endpoints", "DROP");
            }
            choose(nat, svl, &comment, &local);
        }
        _ => {
            line(
                nat,
                format_args!(
                    "-A {ext} -m comment --comment \"masquerade traffic for {comment} external destinations\" -j KUBE-MARK-MASQ"
                ),
            );
            line(nat, format_args!("-A {ext} -j {svc}"));
        }
    }
}

/// The chain of an endpoint. iptables allows names of 28 characters: enough for the lab's addresses.
fn sep(endpoint: &SocketAddr) -> String {
    let tail = endpoint.to_string().replace(['[', ']'], "").replace(['.', ':'], "-");
    format!("KUBE-SEP-{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plan::{Family, NODES, Node, POD_PORT, Plan};
    use crate::sys::owner;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn service() -> Service {
        let plan = Plan::new(0, Family::Ipv4);
        Service { name: "web".to_owned(), plan, node: Node(0), node_port: None }
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
                :KUBE-NODEPORTS - [0:0]
                -A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                :KUBE-EXTERNAL-SERVICES - [0:0]
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
                :KUBE-NODEPORTS - [0:0]
                :KUBE-SVC-WEB - [0:0]
                :KUBE-SEP-10-100-1-20-8080 - [0:0]
                -A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-WEB
                -A KUBE-SVC-WEB ! -s 10.100.1.0/24 -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http cluster IP" -j KUBE-MARK-MASQ
                -A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
                -A KUBE-SVC-WEB -m comment --comment "default/web:http -> 10.100.1.20:8080" -j KUBE-SEP-10-100-1-20-8080
                -A KUBE-SEP-10-100-1-20-8080 -s 10.100.1.20/32 -m comment --comment "default/web:http" -j KUBE-MARK-MASQ
                -A KUBE-SEP-10-100-1-20-8080 -p tcp -m comment --comment "default/web:http" -m tcp -j DNAT --to-destination 10.100.1.20:8080
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                :KUBE-EXTERNAL-SERVICES - [0:0]
                COMMIT
            "#]],
        );
    }

    #[test]
    fn a_port_on_the_nodes_leads_to_every_endpoint_with_masquerade() {
        let service = Service { node_port: Some(TrafficPolicy::Cluster), ..service() };
        expect![[r#"
            *nat
            :KUBE-SERVICES - [0:0]
            :KUBE-NODEPORTS - [0:0]
            :KUBE-SVC-WEB - [0:0]
            :KUBE-EXT-WEB - [0:0]
            :KUBE-SEP-10-100-2-20-8080 - [0:0]
            -A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-WEB
            -A KUBE-SVC-WEB ! -s 10.100.1.0/24 -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http cluster IP" -j KUBE-MARK-MASQ
            -A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
            -A KUBE-SVC-WEB -m comment --comment "default/web:http -> 10.100.2.20:8080" -j KUBE-SEP-10-100-2-20-8080
            -A KUBE-SEP-10-100-2-20-8080 -s 10.100.2.20/32 -m comment --comment "default/web:http" -j KUBE-MARK-MASQ
            -A KUBE-SEP-10-100-2-20-8080 -p tcp -m comment --comment "default/web:http" -m tcp -j DNAT --to-destination 10.100.2.20:8080
            -A KUBE-NODEPORTS -p tcp -m comment --comment "default/web:http" -m tcp --dport 30080 -j KUBE-EXT-WEB
            -A KUBE-EXT-WEB -m comment --comment "masquerade traffic for default/web:http external destinations" -j KUBE-MARK-MASQ
            -A KUBE-EXT-WEB -j KUBE-SVC-WEB
            COMMIT
            *filter
            :KUBE-SERVICES - [0:0]
            :KUBE-EXTERNAL-SERVICES - [0:0]
            COMMIT
        "#]].assert_eq(&sync(&service, &set(&["10.100.2.20:8080"]), &set(&[])));
    }

    #[test]
    fn or_to_those_of_its_own_node_without() {
        let service = Service { node_port: Some(TrafficPolicy::Local), ..service() };
        let endpoints = set(&["10.100.1.20:8080", "10.100.1.21:8080", "10.100.2.20:8080"]);
        let text = sync(&service, &endpoints, &set(&[]));
        let external: Vec<_> = text
            .lines()
            .filter(|line| line.contains("-WEB") && !line.contains("-A KUBE-SVC"))
            .collect();
        expect![[r#"
            :KUBE-SVC-WEB - [0:0]
            :KUBE-EXT-WEB - [0:0]
            :KUBE-SVL-WEB - [0:0]
            -A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -d 10.100.96.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-WEB
            -A KUBE-NODEPORTS -p tcp -m comment --comment "default/web:http" -m tcp --dport 30080 -j KUBE-EXT-WEB
            -A KUBE-EXT-WEB -s 10.100.1.0/24 -m comment --comment "pod traffic for default/web:http external destinations" -j KUBE-SVC-WEB
            -A KUBE-EXT-WEB -m comment --comment "masquerade LOCAL traffic for default/web:http external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
            -A KUBE-EXT-WEB -m comment --comment "route LOCAL traffic for default/web:http external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-WEB
            -A KUBE-EXT-WEB -j KUBE-SVL-WEB
            -A KUBE-SVL-WEB -m comment --comment "default/web:http -> 10.100.1.20:8080" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-10-100-1-20-8080
            -A KUBE-SVL-WEB -m comment --comment "default/web:http -> 10.100.1.21:8080" -j KUBE-SEP-10-100-1-21-8080"#]].assert_eq(&external.join("\n"));
        let text = sync(&service, &set(&["10.100.2.20:8080"]), &set(&[]));
        assert!(
            text.contains(
                "has no local endpoints\" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP"
            ),
            "{text}"
        );
    }

    #[test]
    fn ipv6_addresses_have_their_own_length_and_brackets() {
        let service = Service { plan: Plan::new(0, Family::Ipv6), ..service() };
        expect![[r#"
            *nat
            :KUBE-SERVICES - [0:0]
            :KUBE-NODEPORTS - [0:0]
            :KUBE-SVC-WEB - [0:0]
            :KUBE-SEP-fd10-64-1--14-8080 - [0:0]
            -A KUBE-SERVICES -m comment --comment "default/web:http cluster IP" -d fd10:64:60::a/128 -p tcp -m tcp --dport 80 -j KUBE-SVC-WEB
            -A KUBE-SVC-WEB ! -s fd10:64:1::/48 -d fd10:64:60::a/128 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http cluster IP" -j KUBE-MARK-MASQ
            -A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
            -A KUBE-SVC-WEB -m comment --comment "default/web:http -> [fd10:64:1::14]:8080" -j KUBE-SEP-fd10-64-1--14-8080
            -A KUBE-SEP-fd10-64-1--14-8080 -s fd10:64:1::14/128 -m comment --comment "default/web:http" -j KUBE-MARK-MASQ
            -A KUBE-SEP-fd10-64-1--14-8080 -p tcp -m comment --comment "default/web:http" -m tcp -j DNAT --to-destination [fd10:64:1::14]:8080
            COMMIT
            *filter
            :KUBE-SERVICES - [0:0]
            :KUBE-EXTERNAL-SERVICES - [0:0]
            COMMIT
        "#]].assert_eq(&sync(&service, &set(&["[fd10:64:1::14]:8080"]), &set(&[])));
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
                :KUBE-NODEPORTS - [0:0]
                :KUBE-SVC-WEB - [0:0]
                :KUBE-SEP-10-100-1-20-8080 - [0:0]
                -A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
                -X KUBE-SEP-10-100-1-20-8080
                -X KUBE-SVC-WEB
                COMMIT
                *filter
                :KUBE-SERVICES - [0:0]
                :KUBE-EXTERNAL-SERVICES - [0:0]
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
            for family in [Family::Ipv4, Family::Ipv6] {
                let address = Plan::new(index, family).pod(Node(node), nth);
                prop_assert!(sep(&SocketAddr::new(address, POD_PORT)).len() <= 28);
            }
        }
    }
}
