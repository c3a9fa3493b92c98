//! The cluster's DNS server: a real process in a namespace of its own, which the client asks for the Service's
//! name. What it did with each question is in its log, which the truth reads.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::APP;
use super::error::LabError;
use super::listening::takes_datagrams;
use super::pod::{LISTENING_PERIOD, milliseconds};
use super::settings::{Dns, LabSettings};
use super::truth::NameQuestion;
use crate::model::MonoNs;
use crate::sys::netns::Netns;
use crate::sys::process::Process;
use crate::sys::stop::Stop;

/// The Service's name, as a cluster's DNS has it.
pub(crate) fn service_name() -> String {
    format!("{APP}.default.svc.cluster.local")
}

/// What the pod of the DNS server is called.
const POD: &str = "dns";

/// A DNS server that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct DnsServer {
    address: SocketAddr,
    process: Process,
    /// In memory: nothing of it is left, however the lab ends.
    log: File,
}

impl DnsServer {
    /// Starts it, and waits until it takes questions. It says that the Service has this address.
    pub(crate) fn start(
        netns: &Netns,
        address: SocketAddr,
        service: IpAddr,
        Dns { delay, loss }: Dns,
        settings: &LabSettings,
        stop: &Stop,
    ) -> Result<DnsServer, LabError> {
        let log = memfd_create(c"questions", MFdFlags::MFD_CLOEXEC)
            .map_err(|errno| LabError::DnsLog(errno.into()))?;
        let log = File::from(log);
        let path = format!("/proc/{}/fd/{}", std::process::id(), log.as_raw_fd());
        let mut command = Command::new(&settings.program);
        command
            .args(["serve", "dns", "--die-with-parent"])
            .args(["--listen", &address.to_string()])
            .args(["--name", &format!("{}={service}", service_name())])
            .args(["--delay", &milliseconds(delay)])
            .args(["--lose", &loss.to_string(), "--seed", &settings.seed.to_string()])
            .args(["--log", &path]);
        let process = Process::start(Netns::open(netns.name())?, command)
            .map_err(|source| LabError::Process { pod: POD.to_owned(), source })?;
        let server = DnsServer { address, process, log };
        let began = Instant::now();
        while !takes_datagrams(server.process.pid(), address.port()).unwrap_or(false) {
            server.check()?;
            if began.elapsed() > settings.ready_within {
                return Err(LabError::NotReady {
                    pod: POD.to_owned(),
                    after: settings.ready_within,
                    answer: "its process takes no questions".to_owned(),
                });
            }
            if !stop.wait(LISTENING_PERIOD) {
                return Err(LabError::Stopped);
            }
        }
        Ok(server)
    }

    /// Where it is asked.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The questions that came up to now.
    pub(crate) fn questions(&self) -> Result<Vec<NameQuestion>, LabError> {
        self.check()?;
        let mut text = String::new();
        let mut log = &self.log;
        log.rewind().and_then(|()| log.read_to_string(&mut text)).map_err(LabError::DnsLog)?;
        Ok(text.lines().skip(1).filter_map(parse).collect())
    }

    fn check(&self) -> Result<(), LabError> {
        match self.process.ended() {
            None => Ok(()),
            Some(ended) => Err(LabError::PodEnded {
                pod: POD.to_owned(),
                status: ended.status.to_string(),
                stderr: ended.stderr,
            }),
        }
    }
}

/// `123456789,10.100.1.16:40001,true`
fn parse(row: &str) -> Option<NameQuestion> {
    let mut fields = row.split(',');
    let at = MonoNs(fields.next()?.parse().ok()?);
    let client: SocketAddr = fields.next()?.parse().ok()?;
    let is_answered = fields.next()?.parse().ok()?;
    Some(NameQuestion { at, port: client.port(), is_answered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_its_log_is_a_question() {
        let expected = NameQuestion { at: MonoNs(17), port: 40001, is_answered: false };
        assert_eq!(parse("17,10.100.1.16:40001,false"), Some(expected));
        assert_eq!(parse("17,[fd10:64:1::10]:40001,false"), Some(expected));
        assert_eq!(parse("17,10.100.1.16:40001"), None);
    }
}
