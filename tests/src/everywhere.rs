//! Scenarios are written once, each an `async fn(&Ground)`, and become a test on every kind of server.

/// Declares the tests of scenarios on one kind of server, in a module of that name.
#[macro_export]
macro_rules! on_server {
    ($server:ident, $url:ident: $($module:ident::$name:ident;)*) => {
        mod $server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let ground = $crate::ground::Ground::at(&txn_testkit::env::$url()).await;
                    Box::pin(super::$module::$name(&ground)).await;
                    ground.clear().await;
                }
            )*
        }
    };
}

/// Declares the tests of scenarios, `module::name;` each, on an Elasticsearch and on an OpenSearch; of those
/// that are called short also on an Elasticsearch 7.
#[macro_export]
macro_rules! everywhere {
    (short: { $($short:tt)* } long: { $($long:tt)* }) => {
        $crate::everywhere! { $($short)* $($long)* }
        $crate::on_server! { elasticsearch7, elasticsearch7_url: $($short)* }
    };
    ($($scenarios:tt)*) => {
        $crate::on_server! { elasticsearch, elasticsearch_url: $($scenarios)* }
        $crate::on_server! { opensearch, opensearch_url: $($scenarios)* }
    };
}
