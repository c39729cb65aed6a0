//! Requests continue even if the runtimes of other callers stop.

use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::*;

/// A server that answers every request after a pause. The server has its own thread.
fn server(pause: Duration) -> String {
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(1..) = socket.read(&mut buffer).await {
                        tokio::time::sleep(pause).await;
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        let _ = socket.write_all(answer).await;
                    }
                });
            }
        });
    });
    format!("http://{}", address.recv().unwrap())
}

fn transport(url: &str) -> Transport {
    let config = EsConfig::from_url(url).unwrap();
    Transport::new(&config.with_request_timeout(Duration::from_secs(5))).unwrap()
}

#[test]
fn resting_runtime_does_not_stop_other_requests() {
    let transport = transport(&server(Duration::ZERO));
    let resting = Builder::new_current_thread().enable_all().build().unwrap();
    // Opens the connection. After that no thread drives this runtime.
    assert_eq!(resting.block_on(transport.send(write())).unwrap().status, 200);
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        assert_eq!(other.block_on(transport.send(write())).unwrap().status, 200);
    }
    assert_eq!(resting.block_on(transport.send(write())).unwrap().status, 200);
}

#[test]
fn ended_runtime_does_not_stop_other_requests() {
    let transport = Arc::new(transport(&server(Duration::from_millis(200))));
    for _ in 0..3 {
        let ending = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        assert_eq!(ending.block_on(transport.send(write())).unwrap().status, 200);
        let shared = transport.clone();
        let under_way = std::thread::spawn(move || {
            let other = Builder::new_current_thread().enable_all().build().unwrap();
            other.block_on(shared.send(write()))
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(ending);
        assert_eq!(under_way.join().unwrap().unwrap().status, 200);
    }
}

#[test]
fn a_request_needs_no_runtime_of_its_caller() {
    let transport = transport(&server(Duration::ZERO));
    assert_eq!(futures::executor::block_on(transport.send(write())).unwrap().status, 200);
}

#[tokio::test]
async fn dropped_future_ends_its_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(&format!("http://{}", listener.local_addr().unwrap()));
    let mut socket = {
        let sending = std::pin::pin!(transport.send(write()));
        let accepting = std::pin::pin!(async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            assert!(socket.read(&mut buffer).await.unwrap() > 0);
            socket
        });
        match futures::future::select(sending, accepting).await {
            futures::future::Either::Right((socket, _)) => socket,
            futures::future::Either::Left((answer, _)) => panic!("{answer:?}"),
        }
    };
    // Ends when the connection is closed.
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn the_last_handle_may_be_dropped_inside_a_runtime() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(&format!("http://{}", listener.local_addr().unwrap()));
    let answer = tokio::time::timeout(Duration::from_millis(100), transport.send(write())).await;
    assert!(answer.is_err(), "no answer");
    drop(transport);
}
