//! A headless Chromium, driven by the WebDriver protocol of `chromedriver`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

/// The name of an element in the answers of the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The longest command, so that a browser that hangs ends the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one window. Its programs end with the value.
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session, and the driver by a signal.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    pub(crate) fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver starts: apt-get install chromium chromium-driver");
        let mut lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let port = lines.find_map(|line| {
            let line = line.expect("reads");
            Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        let agent = Agent::config_builder().http_status_as_error(false);
        let agent = agent.timeout_global(Some(PATIENCE)).build();
        let agent = Agent::new_with_config(agent);
        let base = format!("http://127.0.0.1:{}/session", port.expect("a port"));
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        });
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let mut answer = agent.post(&base).send_json(body).expect("a session");
        let answer: Value = answer.body_mut().read_json().expect("JSON");
        let id = answer["value"]["sessionId"].as_str();
        let session = format!("{base}/{}", id.unwrap_or_else(|| panic!("{answer}")));
        Self { driver, agent, session }
    }

    /// Sends a command of the protocol.
    fn command(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/{path}", self.session);
        let mut answer = self.agent.post(&url).send_json(body).expect("the driver answers");
        let answer: Value = answer.body_mut().read_json().expect("JSON");
        assert!(answer["value"]["error"].is_null(), "{path} {body}: {answer}");
        answer["value"].clone()
    }

    /// Sends a command of the browser's own protocol.
    fn own(&self, name: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// Shows pages on a screen of this size and scheme.
    ///
    /// The scheme is dark or light.
    pub(crate) fn show_as(&self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.own("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.own("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// The value of an expression of the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let script = json!({ "script": format!("return {expression}"), "args": [] });
        self.command("execute/sync", &script)
    }

    /// The visible text of the page.
    pub(crate) fn text(&self) -> String {
        let text = self.value("document.body ? document.body.innerText : ''");
        text.as_str().expect("a text").to_owned()
    }

    /// Waits until the page has a text. A click does not wait for the next page.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        for _ in 0..600 {
            if self.text().contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the page never has {text:?}: {}", self.text());
    }

    /// Finds the first element of a CSS selector.
    fn element(&self, selector: &str) -> String {
        let found = self.command("element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.command(&format!("element/{element}/click"), &json!({}));
    }

    pub(crate) fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.command(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses a key on the page. `key` is a code of the protocol.
    pub(crate) fn press(&self, key: &str) {
        let actions = json!([
            { "type": "keyDown", "value": key }, { "type": "keyUp", "value": key },
        ]);
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("actions", &json!({ "actions": [keyboard] }));
    }

    /// The messages of the browser about the pages so far.
    pub(crate) fn messages(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(Value::to_string).collect()
    }

    /// Saves a picture of the window.
    pub(crate) fn save_picture(&self, file: &Path) {
        use base64::Engine;
        let picture = self.own("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = picture["data"].as_str().expect("a picture");
        let png = base64::prelude::BASE64_STANDARD.decode(data).expect("base64");
        std::fs::write(file, png).expect("writes");
    }
}
