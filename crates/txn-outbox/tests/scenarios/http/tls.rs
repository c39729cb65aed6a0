//! A receiver with TLS: all calls share one TLS state.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, Stream};
use txn_outbox::OutboxError;
use txn_outbox::http::{Destination, Dispatcher, HttpConfig, HttpState, Retry};
use txn_testkit::servers::Certificates;

use super::{World, post};
use crate::scenarios::PATIENCE;

/// Answers one request with 200, and returns the kind of the handshake.
fn answer(stream: &mut TcpStream, config: Arc<ServerConfig>) -> std::io::Result<HandshakeKind> {
    let mut connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = Stream::new(&mut connection, stream);
    let (mut request, mut bytes) = (Vec::new(), [0; 1_024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = tls.read(&mut bytes)?;
        request.extend_from_slice(&bytes[..read]);
    }
    tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    tls.conn.send_close_notify();
    tls.flush()?;
    connection.handshake_kind().ok_or_else(|| std::io::Error::other("no handshake"))
}

/// A TLS server on its own thread, and its handshakes.
fn receiver(made: &Certificates) -> (u16, Arc<Mutex<Vec<HandshakeKind>>>) {
    let certificate = CertificateDer::from_pem_slice(made.server.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(made.server_key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("a certificate and its key"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A handshake that the caller ends is not an error of the server.
            if let Ok(kind) = answer(&mut stream, config.clone()) {
                noted.lock().push(kind);
            }
        }
    });
    (port, seen)
}

pub(crate) async fn tls_sessions_are_resumed(world: &World) {
    let made = Certificates::make().expect("certificates");
    let (port, seen) = receiver(&made);
    let office = world.office().await;
    let origin = format!("https://localhost:{port}");
    let place = Destination::new(&origin).expect("an origin");
    let place = ["127.0.0.0/8", "::1"]
        .iter()
        .fold(place, |place, network| place.with_address(network).expect("a network"));
    let config = HttpConfig::default().with_destinations(vec![place]);
    let trusting = config.clone().with_certificate_authorities(vec![made.authority.clone()]);
    let processor = office.start(world.config(), trusting).await;
    for n in 0..3 {
        let id = office.keep(&post(format!("{origin}/{n}")).with_key("a")).await;
        office.result(&id, HttpState::Done).await;
    }
    assert!(processor.stop(PATIENCE).await);
    // The first handshake is full. Each later call has its own connection, and resumes the session.
    let kinds = seen.lock().clone();
    assert!(!matches!(kinds[0], HandshakeKind::Resumed), "{kinds:?}");
    assert_eq!(kinds[1..], [HandshakeKind::Resumed; 2]);
    // Another authority is not trusted, and a text that is not a certificate is refused at once.
    let counted = config.clone().with_unanswered(Retry::Counted);
    let processor = office.start(world.few_tries(1), counted).await;
    let id = office.keep(&post(format!("{origin}/untrusted")).with_key("b")).await;
    let letter = office.dead(&id).await;
    assert!(letter.error.contains("certificate"), "{}", letter.error);
    assert!(processor.stop(PATIENCE).await);
    assert_eq!(seen.lock().len(), 3);
    let broken = config.with_certificate_authorities(vec!["no certificate".to_owned()]);
    let refused = Dispatcher::open(&office.desk.domain, broken).await;
    assert!(matches!(refused, Err(OutboxError::InvalidConfig(_))), "{refused:?}");
}
