//! A scripted server.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A request as it arrived.
pub(super) struct Received {
    /// The number of its connection.
    pub(super) connection: usize,
    pub(super) method: String,
    /// The path with the query.
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(each, _)| each == name);
        header.map(|(_, value)| value.as_str())
    }
}

pub(super) struct Fake {
    pub(super) url: String,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Fake {
    /// Starts a server that answers with the results of a function.
    ///
    /// The function may also answer nothing.
    pub(super) async fn start<F>(answer: F) -> Self
    where
        F: Fn(&Received) -> Option<(u16, String)> + Send + Sync + 'static,
    {
        Self::start_with(None, answer).await
    }

    /// The same, with TLS.
    pub(super) async fn start_with<F>(tls: Option<TlsAcceptor>, answer: F) -> Self
    where
        F: Fn(&Received) -> Option<(u16, String)> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (connections.clone(), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (answer, tls) = (answer.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(socket, number, &*answer).await,
                        // A client may refuse the certificate.
                        Some(tls) => {
                            if let Ok(socket) = tls.accept(socket).await {
                                serve(socket, number, &*answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { url, connections }
    }
}

async fn serve(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    answer: &(impl Fn(&Received) -> Option<(u16, String)> + Sync),
) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = socket.read(&mut buffer).await {
        received.extend_from_slice(&buffer[..read]);
        let Some(request) = parse(connection, &received) else { continue };
        received.clear();
        if let Some((status, body)) = answer(&request) {
            let text = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if socket.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn parse(connection: usize, bytes: &[u8]) -> Option<Received> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let headers = lines.map(header).collect();
    let mut request = Received { connection, method, path, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let body = bytes[end + 4..].get(..length)?;
    request.body = body.to_vec();
    Some(request)
}
