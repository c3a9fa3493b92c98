//! kube-proxy's rules in nftables mode, for `nft -f -`. Pure.
//!
//! The shape is kube-proxy's (pkg/proxy/nftables): one table, verdict maps from addresses and ports to
//! chains, a chain for the Service, one for each endpoint. Only the hashes in the chains' names are missing.
//! A packet that conntrack judges invalid is not dropped here, as in that mode of kube-proxy.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::{Service, TrafficPolicy, line};
use crate::lab::plan::{Family, NODE_PORT};

/// The family's words: of the table, of a header, of an address in a map.
fn words(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::Ipv4 => ("ip", "ipv4_addr"),
        Family::Ipv6 => ("ip6", "ipv6_addr"),
    }
}

/// The table, its maps, and its chains that stay.
pub(super) fn base(family: Family) -> String {
    let (ip, address) = words(family);
    format!(
        "\
table {ip} kube-proxy {{
	comment \"rules for kube-proxy\"
	map no-endpoint-services {{ type {address} . inet_proto . inet_service : verdict; }}
	map no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; }}
	map service-ips {{ type {address} . inet_proto . inet_service : verdict; }}
	map service-nodeports {{ type inet_proto . inet_service : verdict; }}
	chain mark-for-masquerade {{ meta mark set meta mark or 0x4000; }}
	chain masquerading {{
		meta mark and 0x4000 == 0 return
		meta mark set meta mark xor 0x4000
		masquerade fully-random
	}}
	chain reject-chain {{ reject; }}
	chain services {{
		{ip} daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local meta l4proto . th dport vmap @service-nodeports
	}}
	chain service-endpoints-check {{ {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
	chain nodeport-endpoints-check {{ fib daddr type local meta l4proto . th dport vmap @no-endpoint-nodeports; }}
	chain filter-prerouting {{
		type filter hook prerouting priority -110;
		ct state new jump service-endpoints-check
	}}
	chain filter-input {{
		type filter hook input priority -110;
		ct state new jump nodeport-endpoints-check
		ct state new jump service-endpoints-check
	}}
	chain filter-forward {{
		type filter hook forward priority -110;
		ct state new jump service-endpoints-check
	}}
	chain filter-output {{
		type filter hook output priority -110;
		ct state new jump service-endpoints-check
	}}
	chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
	chain nat-output {{ type nat hook output priority -100; jump services; }}
	chain nat-postrouting {{ type nat hook postrouting priority 100; jump masquerading; }}
}}
"
    )
}

/// See [`super::ProxyMode::sync`].
pub(super) fn sync(
    service: &Service,
    endpoints: &BTreeSet<SocketAddr>,
    before: &BTreeSet<SocketAddr>,
) -> String {
    let (ip, _) = words(service.plan.family());
    let table = format!("{ip} kube-proxy");
    let tail = format!("default/{}/tcp/http", service.name);
    let (svc, ext) = (format!("service-{tail}"), format!("external-{tail}"));
    let frontend = service.plan.service();
    let key = format!("{} . tcp . {}", frontend.ip(), frontend.port());
    let mut text = String::new();
    let mut chain = |name: &str| {
        line(&mut text, format_args!("add chain {table} {name}\nflush chain {table} {name}"));
    };
    chain(&svc);
    if service.node_port.is_some() {
        chain(&ext);
    }
    // Those of gone endpoints are left empty: kube-proxy, too, deletes them only some syncs later.
    endpoints.union(before).for_each(|endpoint| chain(&endpoint_chain(&tail, endpoint)));
    for map in ["service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports"]
    {
        line(&mut text, format_args!("flush map {table} {map}"));
    }
    let mut element = |map: &str, key: &str, verdict: &str| {
        line(&mut text, format_args!("add element {table} {map} {{ {key} : {verdict} }}"));
    };
    let node_port = format!("tcp . {NODE_PORT}");
    let local = service.local(endpoints);
    if endpoints.is_empty() {
        element("no-endpoint-services", &key, "goto reject-chain");
        if service.node_port.is_some() {
            element("no-endpoint-nodeports", &node_port, "goto reject-chain");
        }
        return text;
    }
    element("service-ips", &key, &format!("goto {svc}"));
    match service.node_port {
        Some(TrafficPolicy::Local) if local.is_empty() => {
            element("no-endpoint-nodeports", &node_port, "drop");
        }
        Some(_) => element("service-nodeports", &node_port, &format!("goto {ext}")),
        None => {}
    }
    let mut rule = |chain: &str, rule: &str| {
        line(&mut text, format_args!("add rule {table} {chain} {rule}"));
    };
    let cidr = service.plan.pod_cidr(service.node);
    rule(
        &svc,
        &format!(
            "{ip} daddr {} tcp dport {} {ip} saddr != {cidr} jump mark-for-masquerade",
            frontend.ip(),
            frontend.port()
        ),
    );
    rule(&svc, &choose(&tail, endpoints.iter()));
    match service.node_port {
        Some(TrafficPolicy::Cluster) => {
            rule(&ext, "jump mark-for-masquerade");
            rule(&ext, &format!("goto {svc}"));
        }
        Some(TrafficPolicy::Local) => {
            rule(&ext, &format!("{ip} saddr {cidr} goto {svc}"));
            rule(&ext, "fib saddr type local jump mark-for-masquerade");
            rule(&ext, &format!("fib saddr type local goto {svc}"));
            if !local.is_empty() {
                rule(&ext, &choose(&tail, local.iter()));
            }
        }
        None => {}
    }
    for endpoint in endpoints {
        let chain = endpoint_chain(&tail, endpoint);
        rule(&chain, &format!("{ip} saddr {} jump mark-for-masquerade", endpoint.ip()));
        rule(&chain, &format!("meta l4proto tcp dnat to {endpoint}"));
    }
    text
}

/// The rule that chooses one of the endpoints, each with the same chance.
fn choose<'a>(tail: &str, endpoints: impl ExactSizeIterator<Item = &'a SocketAddr>) -> String {
    let count = endpoints.len();
    let choices = endpoints
        .enumerate()
        .map(|(nth, endpoint)| format!("{nth} : goto {}", endpoint_chain(tail, endpoint)));
    let choices = choices.collect::<Vec<_>>().join(", ");
    format!("numgen random mod {count} vmap {{ {choices} }}")
}

/// The chain of an endpoint.
fn endpoint_chain(tail: &str, endpoint: &SocketAddr) -> String {
    let address = endpoint.ip().to_string().replace(':', ".");
    format!("endpoint-{tail}__{address}/{}", endpoint.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plan::{Node, Plan};
    use expect_test::{Expect, expect};

    fn set(endpoints: &[&str]) -> BTreeSet<SocketAddr> {
        endpoints.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn check(
        family: Family,
        node_port: Option<TrafficPolicy>,
        endpoints: &[&str],
        before: &[&str],
        expected: Expect,
    ) {
        let plan = Plan::new(0, family);
        let service = Service { name: "web".to_owned(), plan, node: Node(0), node_port };
        expected.assert_eq(&sync(&service, &set(endpoints), &set(before)));
    }

    #[test]
    fn without_endpoints_the_service_is_rejected() {
        check(
            Family::Ipv4,
            None,
            &[],
            &["10.100.1.20:8080"],
            expect![[r#"
            add chain ip kube-proxy service-default/web/tcp/http
            flush chain ip kube-proxy service-default/web/tcp/http
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            flush map ip kube-proxy service-ips
            flush map ip kube-proxy service-nodeports
            flush map ip kube-proxy no-endpoint-services
            flush map ip kube-proxy no-endpoint-nodeports
            add element ip kube-proxy no-endpoint-services { 10.100.96.10 . tcp . 80 : goto reject-chain }
        "#]],
        );
    }

    #[test]
    fn each_endpoint_has_a_number() {
        let endpoints = ["10.100.1.20:8080", "10.100.1.21:8080", "10.100.2.20:8080"];
        check(
            Family::Ipv4,
            None,
            &endpoints,
            &[],
            expect![[r#"
            add chain ip kube-proxy service-default/web/tcp/http
            flush chain ip kube-proxy service-default/web/tcp/http
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.21/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.21/8080
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush map ip kube-proxy service-ips
            flush map ip kube-proxy service-nodeports
            flush map ip kube-proxy no-endpoint-services
            flush map ip kube-proxy no-endpoint-nodeports
            add element ip kube-proxy service-ips { 10.100.96.10 . tcp . 80 : goto service-default/web/tcp/http }
            add rule ip kube-proxy service-default/web/tcp/http ip daddr 10.100.96.10 tcp dport 80 ip saddr != 10.100.1.0/24 jump mark-for-masquerade
            add rule ip kube-proxy service-default/web/tcp/http numgen random mod 3 vmap { 0 : goto endpoint-default/web/tcp/http__10.100.1.20/8080, 1 : goto endpoint-default/web/tcp/http__10.100.1.21/8080, 2 : goto endpoint-default/web/tcp/http__10.100.2.20/8080 }
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080 ip saddr 10.100.1.20 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080 meta l4proto tcp dnat to 10.100.1.20:8080
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.21/8080 ip saddr 10.100.1.21 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.21/8080 meta l4proto tcp dnat to 10.100.1.21:8080
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 ip saddr 10.100.2.20 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 meta l4proto tcp dnat to 10.100.2.20:8080
        "#]],
        );
    }

    #[test]
    fn a_port_on_the_nodes_leads_to_every_endpoint_with_masquerade() {
        let policy = Some(TrafficPolicy::Cluster);
        check(
            Family::Ipv6,
            policy,
            &["[fd10:64:2::14]:8080"],
            &[],
            expect![[r#"
            add chain ip6 kube-proxy service-default/web/tcp/http
            flush chain ip6 kube-proxy service-default/web/tcp/http
            add chain ip6 kube-proxy external-default/web/tcp/http
            flush chain ip6 kube-proxy external-default/web/tcp/http
            add chain ip6 kube-proxy endpoint-default/web/tcp/http__fd10.64.2..14/8080
            flush chain ip6 kube-proxy endpoint-default/web/tcp/http__fd10.64.2..14/8080
            flush map ip6 kube-proxy service-ips
            flush map ip6 kube-proxy service-nodeports
            flush map ip6 kube-proxy no-endpoint-services
            flush map ip6 kube-proxy no-endpoint-nodeports
            add element ip6 kube-proxy service-ips { fd10:64:60::a . tcp . 80 : goto service-default/web/tcp/http }
            add element ip6 kube-proxy service-nodeports { tcp . 30080 : goto external-default/web/tcp/http }
            add rule ip6 kube-proxy service-default/web/tcp/http ip6 daddr fd10:64:60::a tcp dport 80 ip6 saddr != fd10:64:1::/48 jump mark-for-masquerade
            add rule ip6 kube-proxy service-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-default/web/tcp/http__fd10.64.2..14/8080 }
            add rule ip6 kube-proxy external-default/web/tcp/http jump mark-for-masquerade
            add rule ip6 kube-proxy external-default/web/tcp/http goto service-default/web/tcp/http
            add rule ip6 kube-proxy endpoint-default/web/tcp/http__fd10.64.2..14/8080 ip6 saddr fd10:64:2::14 jump mark-for-masquerade
            add rule ip6 kube-proxy endpoint-default/web/tcp/http__fd10.64.2..14/8080 meta l4proto tcp dnat to [fd10:64:2::14]:8080
        "#]],
        );
    }

    #[test]
    fn or_to_those_of_its_own_node_without() {
        let policy = Some(TrafficPolicy::Local);
        let endpoints = ["10.100.1.20:8080", "10.100.2.20:8080"];
        check(
            Family::Ipv4,
            policy,
            &endpoints,
            &[],
            expect![[r#"
            add chain ip kube-proxy service-default/web/tcp/http
            flush chain ip kube-proxy service-default/web/tcp/http
            add chain ip kube-proxy external-default/web/tcp/http
            flush chain ip kube-proxy external-default/web/tcp/http
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush map ip kube-proxy service-ips
            flush map ip kube-proxy service-nodeports
            flush map ip kube-proxy no-endpoint-services
            flush map ip kube-proxy no-endpoint-nodeports
            add element ip kube-proxy service-ips { 10.100.96.10 . tcp . 80 : goto service-default/web/tcp/http }
            add element ip kube-proxy service-nodeports { tcp . 30080 : goto external-default/web/tcp/http }
            add rule ip kube-proxy service-default/web/tcp/http ip daddr 10.100.96.10 tcp dport 80 ip saddr != 10.100.1.0/24 jump mark-for-masquerade
            add rule ip kube-proxy service-default/web/tcp/http numgen random mod 2 vmap { 0 : goto endpoint-default/web/tcp/http__10.100.1.20/8080, 1 : goto endpoint-default/web/tcp/http__10.100.2.20/8080 }
            add rule ip kube-proxy external-default/web/tcp/http ip saddr 10.100.1.0/24 goto service-default/web/tcp/http
            add rule ip kube-proxy external-default/web/tcp/http fib saddr type local jump mark-for-masquerade
            add rule ip kube-proxy external-default/web/tcp/http fib saddr type local goto service-default/web/tcp/http
            add rule ip kube-proxy external-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-default/web/tcp/http__10.100.1.20/8080 }
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080 ip saddr 10.100.1.20 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080 meta l4proto tcp dnat to 10.100.1.20:8080
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 ip saddr 10.100.2.20 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 meta l4proto tcp dnat to 10.100.2.20:8080
        "#]],
        );
        check(
            Family::Ipv4,
            policy,
            &endpoints[1..],
            &endpoints[..1],
            expect![[r#"
            add chain ip kube-proxy service-default/web/tcp/http
            flush chain ip kube-proxy service-default/web/tcp/http
            add chain ip kube-proxy external-default/web/tcp/http
            flush chain ip kube-proxy external-default/web/tcp/http
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.1.20/8080
            add chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush chain ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080
            flush map ip kube-proxy service-ips
            flush map ip kube-proxy service-nodeports
            flush map ip kube-proxy no-endpoint-services
            flush map ip kube-proxy no-endpoint-nodeports
            add element ip kube-proxy service-ips { 10.100.96.10 . tcp . 80 : goto service-default/web/tcp/http }
            add element ip kube-proxy no-endpoint-nodeports { tcp . 30080 : drop }
            add rule ip kube-proxy service-default/web/tcp/http ip daddr 10.100.96.10 tcp dport 80 ip saddr != 10.100.1.0/24 jump mark-for-masquerade
            add rule ip kube-proxy service-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-default/web/tcp/http__10.100.2.20/8080 }
            add rule ip kube-proxy external-default/web/tcp/http ip saddr 10.100.1.0/24 goto service-default/web/tcp/http
            add rule ip kube-proxy external-default/web/tcp/http fib saddr type local jump mark-for-masquerade
            add rule ip kube-proxy external-default/web/tcp/http fib saddr type local goto service-default/web/tcp/http
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 ip saddr 10.100.2.20 jump mark-for-masquerade
            add rule ip kube-proxy endpoint-default/web/tcp/http__10.100.2.20/8080 meta l4proto tcp dnat to 10.100.2.20:8080
        "#]],
        );
    }
}
