//! An axum server on the socket that supervisord holds, which the listenfd crate finds by LISTEN_FDS.
//!
//! What is special is the stop. axum's with_graceful_shutdown closes the connections on which no request has been read yet, so a client
//! that is just sending one loses it (try --graceful). Here, on TERM, nothing more is accepted, each answer says "Connection: close",
//! and the process ends when the last client has gone, or after 25 s.
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::{env, future, io, net, process, time::Duration};

use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::Listener;
use axum::{routing::get, Router};
use listenfd::ListenFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

const SLOW: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(25);

static STOPPING: AtomicBool = AtomicBool::new(false);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = inherited()?;
    let body = format!("generation={} pid={}\n", env::var("SUPERVISORD_GENERATION").unwrap_or_default(), process::id());
    let slow = body.clone();
    let app = Router::new()
        .route("/", get(move || async move { body }))
        .route("/slow", get(move || async move { tokio::time::sleep(SLOW).await; slow }))
        .layer(middleware::from_fn(say_goodbye));
    let mut term = signal(SignalKind::terminate())?;
    let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
    if env::args().any(|a| a == "--graceful") {
        let stop = async move { term.recv().await; };
        return Ok(axum::serve(listener, app).with_graceful_shutdown(stop).await?);
    }
    let (stop, stopped) = watch::channel(()); // the door holds a receiver, and every connection
    tokio::spawn(async move { axum::serve(Door { listener: Some(listener), stopped: Some(stopped) }, app).await });
    term.recv().await;
    STOPPING.store(true, Ordering::SeqCst);
    stop.send_replace(());
    let _ = tokio::time::timeout(LIMIT, stop.closed()).await;
    Ok(())
}

fn inherited() -> io::Result<TcpListener> {
    let listener = match ListenFd::from_env().take_tcp_listener(0)? {
        Some(inherited) => inherited,
        None => net::TcpListener::bind("127.0.0.1:8080")?, // started by hand
    };
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn say_goodbye(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if STOPPING.load(Ordering::SeqCst) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Door lets connections in until we stop; then the socket is closed, in this process alone.
struct Door {
    listener: Option<TcpListener>,
    stopped: Option<watch::Receiver<()>>,
}

impl Listener for Door {
    type Io = Counted;
    type Addr = net::SocketAddr;

    async fn accept(&mut self) -> (Counted, net::SocketAddr) {
        if let (Some(listener), Some(stopped)) = (&mut self.listener, &mut self.stopped) {
            let open = stopped.clone();
            tokio::select! {
                biased;
                _ = stopped.changed() => {}
                (stream, peer) = Listener::accept(listener) => return (Counted { stream, _open: open }, peer),
            }
        }
        (self.listener, self.stopped) = (None, None);
        future::pending().await
    }

    fn local_addr(&self) -> io::Result<net::SocketAddr> {
        self.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }
}

/// Counted is a connection that holds its place in the count of those that are open.
struct Counted {
    stream: TcpStream,
    _open: watch::Receiver<()>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
