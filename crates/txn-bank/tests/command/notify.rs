//! HTTP requests about transfers: one run stores them, another run sends them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use super::Desk;

/// Answers each request with 204, and passes its body on.
fn receiver() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("connects");
            let mut reader = BufReader::new(&stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).expect("reads") <= 2 {
                    break;
                }
                let line = line.to_lowercase();
                if let Some(of) = line.strip_prefix("content-length:") {
                    length = of.trim().parse().expect("a number");
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("reads");
            sender.send(serde_json::from_slice(&body).expect("JSON")).expect("the test waits");
            let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
            (&stream).write_all(answer).expect("answers");
        }
    });
    (format!("http://{address}"), receiver)
}

#[test]
fn finished_transfers_send_notifications() {
    let (origin, told) = receiver();
    let desk = Desk::with_accounts();
    desk.run(&format!("transfer alice:-200 bob:+200 --notify {origin}/no")).refused(1, "alice");
    let one = format!("transfer alice:-30 bob:+30 --id one --notify {origin}/hook");
    desk.run(&one).done();
    assert!(desk.run(&one).done().out.starts_with("Already done"));
    // A transfer with another notification is another transfer.
    desk.run("transfer alice:-30 bob:+30 --id one").refused(1, "other legs, notifications");
    desk.run("transfer alice:-1 bob:+1 --id quiet").done();
    let late = format!("transfer alice:-1 bob:+1 --id quiet --notify {origin}/hook");
    desk.run(&late).refused(1, "\"quiet\"");
    desk.run("transfer alice:+1 bob:-1").done();
    desk.run("transfer alice:-1 bob:+1 --notify nowhere").refused(1, "the URL");
    assert_eq!(desk.waiting(), (1, 1, 0));
    let dispatch = format!("dispatch --allow {origin}");
    assert!(desk.run(&dispatch).done().out.starts_with("1 handled, 0 failed, 0 set aside"));
    let legs = json!([{"account": "alice", "amount": -30}, {"account": "bob", "amount": 30}]);
    assert_eq!(told.try_recv().expect("told"), json!({"transfer": "one", "legs": legs}));
    // A submitted transfer notifies after its execution.
    let two = format!("submit bob:-5 carol:+5 --id two --notify {origin}/hook");
    desk.run(&two).done();
    desk.run(&two).done();
    desk.run("submit bob:-5 carol:+5 --id two").refused(1, "two");
    assert!(desk.run(&dispatch).done().out.starts_with("0 handled"));
    assert!(desk.run("process").done().out.starts_with("1 committed"));
    assert!(desk.run(&dispatch).done().out.starts_with("1 handled"));
    assert_eq!(told.try_recv().expect("told")["transfer"], "two");
    told.try_recv().expect_err("nothing else was done");
    desk.run("audit").done();
}

#[test]
fn refused_notification_becomes_a_dead_letter() {
    let (origin, told) = receiver();
    let desk = Desk::with_accounts();
    desk.run(&format!("transfer alice:-30 bob:+30 --notify {origin}/hook")).done();
    desk.run("dispatch").refused_by_usage("--allow");
    desk.run("dispatch --allow nowhere").refused(1, "origin");
    let dispatched = desk.run("dispatch --allow https://api.example.com").done();
    assert!(dispatched.out.starts_with("0 handled, 1 failed, 1 set aside"), "{}", dispatched.out);
    let dead = desk.dead_letters();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(dead[0].0.starts_with("http-requests/1/"), "{dead:?}");
    desk.events(async |events| events.retry(&dead[0].0).await.expect("returns it"));
    desk.run(&format!("dispatch --allow {origin}")).done();
    told.try_recv().expect("told");
}
