//! One thin program a hook: takes the arguments apart, asks `packet`, records.

mod inet_sock_set_state;
mod kfree_skb;
mod net_dev_start_xmit;
mod tcp_receive_reset;
mod tcp_send_reset;
