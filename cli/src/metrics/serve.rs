//! Serves the page over HTTP.

use super::{scrape, text};
use crate::arguments::Address;
use crate::failure::Failure;
use crate::messages;
use crate::runtime::{block_on_with_signals, refused};
use crate::signals::{Signals, end_by};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

/// Longest lifetime of a connection, which carries one request.
const CONNECTION_MAX: Duration = Duration::from_secs(10);

/// Largest number of connections. Another one replaces the oldest.
const CONNECTIONS: usize = 64;

pub(super) fn serve(address: &Address, locks: u32, at: SocketAddr) -> Result<ExitCode, Failure> {
    let scraper = Scraper { url: address.url.clone(), locks, running: RefCell::default() };
    let signal = block_on_with_signals(async |mut signals: Signals| {
        let trouble = |error: std::io::Error| Failure::trouble(format!("{at}: {error}"));
        let listener = TcpListener::bind(at).await.map_err(trouble)?;
        let at = listener.local_addr().map_err(trouble)?;
        messages::send(&format!("metrics at http://{at}/metrics"));
        let tasks = LocalSet::new();
        tokio::select! {
            signal = signals.end() => signal.map_err(refused),
            never = tasks.run_until(accept(&listener, Rc::new(scraper))) => match never {},
        }
    })?;
    Ok(end_by(signal.signal))
}

async fn accept(listener: &TcpListener, scraper: Rc<Scraper>) -> std::convert::Infallible {
    let mut connections = VecDeque::<JoinHandle<()>>::new();
    loop {
        // Fails, for example, if too many files are open, or if the client has already closed the connection.
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(spawn_local(carry(stream, Rc::clone(&scraper))));
    }
}

/// Answers one request.
async fn carry(stream: TcpStream, scraper: Rc<Scraper>) {
    let answer = service_fn(|request| answer(Rc::clone(&scraper), request));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(CONNECTION_MAX).keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), answer);
    let _closed = timeout(CONNECTION_MAX, connection).await;
}

async fn answer(
    scraper: Rc<Scraper>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    let reply = |status, text: Bytes| {
        let plain = "text/plain; version=0.0.4; charset=utf-8";
        Response::builder().status(status).header(CONTENT_TYPE, plain).body(Full::new(text))
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return reply(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
    }
    if request.uri().path() != "/metrics" {
        return reply(StatusCode::NOT_FOUND, "the figures are at /metrics\n".into());
    }
    reply(StatusCode::OK, scraper.page().await)
}

/// Queries the server. Requests that arrive during a query share its answer.
struct Scraper {
    url: String,
    locks: u32,
    running: RefCell<Option<watch::Receiver<Option<Bytes>>>>,
}

impl Scraper {
    /// Returns a page whose query began at most [`ASK_MAX`](crate::monitor::ASK_MAX) ago.
    async fn page(self: &Rc<Self>) -> Bytes {
        let running = self.running.borrow().clone().filter(|answer| answer.borrow().is_none());
        let mut answer = running.unwrap_or_else(|| self.start());
        match answer.wait_for(Option::is_some).await {
            Ok(page) => page.clone().unwrap_or_default(),
            Err(_) => text::down().into(),
        }
    }

    /// Starts a query. Its task outlives the connection that started it, because others may wait for the
    /// answer.
    fn start(self: &Rc<Self>) -> watch::Receiver<Option<Bytes>> {
        let (sender, answer) = watch::channel(None);
        self.running.replace(Some(answer.clone()));
        let scraper = Rc::clone(self);
        spawn_local(async move {
            let address = Address { url: scraper.url.clone() };
            let page = scrape(&address, scraper.locks).await.unwrap_or_else(|failure| {
                messages::send(&failure.message);
                text::down()
            });
            sender.send_replace(Some(page.into()));
        });
        answer
    }
}
