//! The bytes of a growing file in a pod, through exec. A connection that breaks is made again, and goes on where the
//! last one ended: the file is in the pod, not in the connection.

use std::io;
use std::time::Duration;

use kube::api::AttachParams;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::plan::FOLDER;
use super::trouble::{Deed, PodError};
use super::{NodePods, PATIENCE, asked};
use crate::sys::stop::Stop;

/// Whoever follows in the pod gives a sign of life every five seconds; a connection that is silent for this long is
/// broken, whatever TCP thinks of it.
const SILENCE: Duration = Duration::from_secs(17);
/// How long new connections are tried: after that the pod has ended by itself.
const TRIES: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How much is asked of the connection at once.
const CHUNK: usize = 64 * 1024;

/// How following ended.
#[derive(Debug)]
pub struct Followed {
    /// How many bytes came.
    pub bytes: u64,
    /// How often a connection broke and another one went on.
    pub breaks: u32,
    /// Why the rest is missing, if it is.
    pub cut: Option<Cut>,
}

/// Why a trace ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum Cut {
    /// The pod or its program ended.
    #[error("the pod ended before its trace: {0}")]
    Ended(String),
    /// No connection could be had any more.
    #[error("the connection was lost and did not come back within a minute: {0}")]
    Lost(String),
    /// It did not end when it was asked to.
    #[error("the pod did not end its trace within {} s", PATIENCE.as_secs())]
    Stuck,
}

/// How one connection ended.
enum Over {
    /// All has come.
    Done,
    Broken(String),
    Stuck,
    /// Nobody can write down what comes.
    Unwritten(io::Error),
}

impl NodePods {
    /// Follows the trace of a pod until it is complete; `take` is given its bytes in order, each once. When `stop` is
    /// requested, the pod is asked to end its trace, and the rest still comes.
    ///
    /// # Errors
    /// If exec is not allowed, or what comes can't be written. A trace that was cut is no error.
    pub async fn follow(
        &self,
        pod: &str,
        stop: &Stop,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<io::Result<Followed>, PodError> {
        let mut followed = Followed { bytes: 0, breaks: 0, cut: None };
        let mut lost_since = None;
        let mut stopping = None;
        loop {
            let before = followed.bytes;
            let over =
                match self.connection(pod, &mut followed.bytes, stop, &mut stopping, take).await {
                    Ok(over) => over,
                    Err(error @ (PodError::Forbidden { .. } | PodError::Unauthorized)) => {
                        return Err(error);
                    }
                    Err(error) => Over::Broken(error.to_string()),
                };
            let why = match over {
                Over::Done => return Ok(Ok(followed)),
                Over::Unwritten(error) => return Ok(Err(error)),
                Over::Stuck => {
                    followed.cut = Some(Cut::Stuck);
                    return Ok(Ok(followed));
                }
                Over::Broken(why) => why,
            };
            // A pod that has ended can't be followed again.
            match self.ended(pod).await {
                Ok(Some(Err(said))) if followed.bytes == 0 => {
                    return Err(PodError::Program { said });
                }
                Ok(Some(ended)) => {
                    let said = ended.err().unwrap_or_else(|| "nobody followed it".to_owned());
                    followed.cut = Some(Cut::Ended(said));
                    return Ok(Ok(followed));
                }
                Err(PodError::Unknown { said, .. }) => {
                    followed.cut = Some(Cut::Ended(said));
                    return Ok(Ok(followed));
                }
                Ok(None) | Err(_) => {}
            }
            if followed.bytes > before {
                lost_since = None;
            }
            let since = *lost_since.get_or_insert_with(Instant::now);
            let is_late = stopping.is_some_and(|at: Instant| at.elapsed() > PATIENCE);
            if since.elapsed() > TRIES || is_late {
                followed.cut = Some(Cut::Lost(why));
                return Ok(Ok(followed));
            }
            followed.breaks += 1;
            sleep(PAUSE).await;
        }
    }

    /// One connection, until it ends in some way.
    async fn connection(
        &self,
        pod: &str,
        bytes: &mut u64,
        stop: &Stop,
        stopping: &mut Option<Instant>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Over, PodError> {
        let from = bytes.to_string();
        let command = ["/usr/bin/tracer", "node", "follow", FOLDER, "--from", &from];
        let options = AttachParams::default()
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .max_stdout_buf_size(CHUNK);
        let deed = Deed::Exec { pod: pod.to_owned() };
        let mut process = asked(&deed, self.pods().exec(pod, command, &options)).await?;
        let both = process.stdin().zip(process.stdout()).zip(process.stderr());
        let Some(((mut stdin, mut stdout), mut stderr)) = both else {
            return Ok(Over::Broken("the connection has no streams".to_owned()));
        };
        let Some(status) = process.take_status() else {
            return Ok(Over::Broken("the connection has no status".to_owned()));
        };
        // Its exit status, in the form of the API's Status; none where the connection ended without it.
        let mut status = std::pin::pin!(status);
        let mut ended = None;
        let mut chunk = vec![0; CHUNK];
        let mut sign = vec![0; 1024];
        let mut heard = Instant::now();
        let mut told = false;
        let mut broken = false;
        loop {
            if stop.is_requested() && !told {
                told = true;
                stopping.get_or_insert_with(Instant::now);
                // Not written: then the connection is broken, and the next read says so.
                let _ = timeout(PAUSE, stdin.write_all(b"stop\n")).await;
            }
            if stopping.is_some_and(|at| at.elapsed() > PATIENCE) {
                return Ok(Over::Stuck);
            }
            if heard.elapsed() > SILENCE {
                return Ok(Over::Broken(format!("silent for {} s", SILENCE.as_secs())));
            }
            tokio::select! {
                read = stdout.read(&mut chunk) => match read {
                    Ok(0) => break,
                    Ok(count) => {
                        heard = Instant::now();
                        if let Err(error) = take(&chunk[..count]) {
                            return Ok(Over::Unwritten(error));
                        }
                        *bytes += count as u64;
                    }
                    Err(error) => return Ok(Over::Broken(error.to_string())),
                },
                read = stderr.read(&mut sign) => match read {
                    // Closed: standard output tells the rest.
                    Ok(0) | Err(_) => sleep(LOOK).await,
                    Ok(_) => heard = Instant::now(),
                },
                said = &mut status, if ended.is_none() && !broken => match said {
                    // What is still on its way comes first.
                    Some(said) => ended = Some(said),
                    // What had come is read first: there may be no pod to ask again.
                    None => broken = true,
                },
                () = sleep(LOOK) => {
                    if broken {
                        return Ok(Over::Broken("it broke".to_owned()));
                    }
                }
            }
        }
        if ended.is_none() && !broken {
            ended = timeout(PAUSE, status).await.ok().flatten();
        }
        Ok(match ended {
            Some(status) if status.status.as_deref() == Some("Success") => Over::Done,
            Some(status) => Over::Broken(status.message.unwrap_or_else(|| "it failed".to_owned())),
            None => Over::Broken("it broke".to_owned()),
        })
    }
}
