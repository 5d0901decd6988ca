//! An axum server at the address that it is given, which stops as axum's documentation shows.
use std::{env, time::Duration};

use axum::{routing::get, Router};
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let body = format!("generation={}\n", env::var("SUPERVISORD_GENERATION").unwrap_or_default());
    let slow = body.clone();
    let app = Router::new()
        .route("/", get(move || async move { body }))
        .route("/slow", get(move || async move { tokio::time::sleep(Duration::from_millis(300)).await; slow }));
    let mut term = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(env::args().nth(1).ok_or("no address")?).await?;
    axum::serve(listener, app).with_graceful_shutdown(async move { term.recv().await; }).await?;
    Ok(())
}
