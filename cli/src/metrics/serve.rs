//! The page over HTTP. The server is asked anew for each request.

use super::{measured, text};
use crate::arguments::Address;
use crate::failure::Failure;
use crate::say;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Who connects and says nothing for that long is sent away.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many may be connected at once.
const CONNECTIONS: usize = 64;

pub(super) fn serve(address: &Address, locks: u32, at: SocketAddr) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::trouble(error.to_string()))?;
    let url: Arc<str> = address.url.as_str().into();
    runtime.block_on(async {
        let trouble = |error: std::io::Error| Failure::trouble(format!("{at}: {error}"));
        let listener = TcpListener::bind(at).await.map_err(trouble)?;
        let at = listener.local_addr().map_err(trouble)?;
        say(&format!("metrics at http://{at}/metrics"));
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return Ok(ExitCode::SUCCESS);
            };
            // Too many open files, or somebody who has hung up already.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let url = Arc::clone(&url);
            tokio::spawn(async move {
                let answer = service_fn(|request| answer(Arc::clone(&url), locks, request));
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                let _hung_up = http.serve_connection(TokioIo::new(stream), answer).await;
                drop(place);
            });
        }
    })
}

async fn answer(
    url: Arc<str>,
    locks: u32,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    let reply = |status, text: String| {
        let plain = "text/plain; version=0.0.4; charset=utf-8";
        let page = Response::builder().status(status).header(CONTENT_TYPE, plain);
        page.body(Full::new(Bytes::from(text)))
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return reply(StatusCode::METHOD_NOT_ALLOWED, String::new());
    }
    if request.uri().path() != "/metrics" {
        return reply(StatusCode::NOT_FOUND, "the figures are at /metrics\n".to_owned());
    }
    let ask = move || measured(&Address { url: url.to_string() }, locks);
    let page = match tokio::task::spawn_blocking(ask).await {
        Ok(Ok(page)) => page,
        Ok(Err(failure)) => {
            say(&failure.message);
            text::nobody()
        }
        Err(_) => text::nobody(),
    };
    reply(StatusCode::OK, page)
}
