//! The way to the API: where it is, who we are, how often we may ask, and what its clock says.

use std::error::Error;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::header::{DATE, HeaderMap, RETRY_AFTER};
use hyper::{Request, Response};
use jiff::fmt::rfc2822;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{BoxError, Layer, Service};

use super::ClusterError;
use super::clock::ApiClock;
use crate::model::WallNs;
use crate::sys::clock;

/// Requests that may follow each other without a pause: every kind is listed and watched at once.
const BURST: u32 = 30;
/// After those, the time from one request to the next. A server that ends every watch at once would be asked without
/// end otherwise.
const PAUSE: Duration = Duration::from_millis(250);
/// No Retry-After is heeded for longer.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How to reach a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The kubeconfig [default: as kubectl finds it; in a pod its service account].
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context [default: the current one; in a pod its service account].
    pub context: Option<String>,
}

/// A client of the cluster that the surroundings name, its default namespace's name, and what it learns of the
/// server's clock.
///
/// # Errors
/// If there is none, or its configuration can't be used.
pub async fn client(access: &Access) -> Result<(Client, Arc<ApiClock>, String), ClusterError> {
    let mut config = match (&access.kubeconfig, &access.context) {
        (None, None) => Config::infer()
            .await
            .map_err(|error| ClusterError::NoCluster { why: causes(&error) })?,
        (path, context) => {
            let with_why = |why: String| ClusterError::Kubeconfig { why };
            let kubeconfig = match path {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let kubeconfig = kubeconfig.map_err(|error| with_why(causes(&error)))?;
            let options = KubeConfigOptions { context: context.clone(), ..Default::default() };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.map_err(|error| with_why(causes(&error)))?
        }
    };
    config.connect_timeout = Some(CONNECT);
    // Pauses are this room's own: the client's retries would hide them.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    let clock = Arc::new(ApiClock::default());
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| ClusterError::Kubeconfig { why: causes(&error) })?;
    let pacing = Pacing { clock: Arc::clone(&clock), pace: Arc::new(Mutex::new(Pace::new())) };
    Ok((builder.with_layer(&pacing).build(), clock, url))
}

/// An error and its causes on one line, each said once.
pub(super) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// Paces requests and reads the server's clock from the answers.
struct Pacing {
    clock: Arc<ApiClock>,
    pace: Arc<Mutex<Pace>>,
}

impl<S> Layer<S> for Pacing {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        let (clock, pace) = (Arc::clone(&self.clock), Arc::clone(&self.pace));
        Paced { inner, clock, pace, sleep: None }
    }
}

struct Paced<S> {
    inner: S,
    clock: Arc<ApiClock>,
    pace: Arc<Mutex<Pace>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// A token bucket that a Retry-After empties.
#[derive(Debug)]
struct Pace {
    tokens: f64,
    filled: Instant,
    not_before: Instant,
}

impl Pace {
    fn new() -> Pace {
        let now = Instant::now();
        Pace { tokens: f64::from(BURST), filled: now, not_before: now }
    }

    /// When the next request may be sent; taken, if that is now.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        if now < self.not_before {
            return Err(self.not_before);
        }
        let gained = now.duration_since(self.filled).as_secs_f64() / PAUSE.as_secs_f64();
        self.tokens = (self.tokens + gained).min(f64::from(BURST));
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(now + PAUSE.mul_f64(1.0 - self.tokens))
    }

    fn heed(&mut self, headers: &HeaderMap, now: Instant) {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(seconds) = seconds {
            let pause = Duration::from_secs(seconds).min(LONGEST_RETRY);
            self.not_before = self.not_before.max(now + pause);
        }
    }
}

fn locked(pace: &Mutex<Pace>) -> std::sync::MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<S, B> Service<Request<Body>> for Paced<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            ready!(self.inner.poll_ready(context))?;
            let taken = locked(&self.pace).take(Instant::now());
            match taken {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(at) => self.sleep = Some(Box::pin(sleep_until(at))),
            }
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = wall();
        let answer = self.inner.call(request);
        let (clock, pace) = (Arc::clone(&self.clock), Arc::clone(&self.pace));
        Box::pin(async move {
            let answer = answer.await?;
            if let Some(date) = date(answer.headers()) {
                clock.answered(sent, date, wall());
            }
            locked(&pace).heed(answer.headers(), Instant::now());
            Ok(answer)
        })
    }
}

fn wall() -> WallNs {
    let anchor = clock::anchor();
    anchor.wall(anchor.mono)
}

/// The whole second of a `Date` header.
fn date(headers: &HeaderMap) -> Option<i64> {
    let text = headers.get(DATE)?.to_str().ok()?;
    let parsed = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(parsed.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Tue, 01 Dec 2026 02:13:32 GMT".parse().unwrap());
        assert_eq!(date(&headers), Some(1_796_091_212));
        headers.insert(DATE, "yesterday".parse().unwrap());
        assert_eq!(date(&headers), None);
    }

    #[test]
    fn requests_are_slowed_down_after_a_burst() {
        let mut pace = Pace::new();
        let now = Instant::now();
        let taken = (0..100).filter(|_| pace.take(now).is_ok()).count();
        assert_eq!(taken, 30);
        assert_eq!(pace.take(now), Err(now + PAUSE));
        assert_eq!(pace.take(now + PAUSE), Ok(()));
    }

    #[test]
    fn nothing_is_asked_before_retry_after_is_over() {
        let mut pace = Pace::new();
        let now = Instant::now();
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        pace.heed(&headers, now);
        assert_eq!(pace.take(now), Err(now + Duration::from_secs(7)));
        headers.insert(RETRY_AFTER, "86400".parse().unwrap());
        pace.heed(&headers, now);
        assert_eq!(pace.take(now), Err(now + LONGEST_RETRY));
    }
}
