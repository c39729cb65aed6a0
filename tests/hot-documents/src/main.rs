//! quick
use txn_hot_documents::scenario::*;
use txn_hot_documents::workload::*;
use txn_hot_documents::world::*;
fn main() {
    let plain = |n: usize| {
        let mut p = ProcessSpec::new(1, n);
        p.is_plain = true;
        p
    };
    for c in [8usize, 32] {
        let base = mean(&runs(&Setting::new(vec![plain(c)]), &[1]), |o| o.total());
        for k in [1usize, 2, 4, 8, 16] {
            let mut s = Setting::new(vec![ProcessSpec::new(1, c); k]);
            s.seconds = 4;
            s.board.is_blind = std::env::var("BLIND").is_ok();
            let t = std::time::Instant::now();
            let o = runs(&s, &[1]);
            println!(
                "{k}x{c} {:.0}/s {:.3} share {:.2} longest {:.0} p99 {:.1} batch {:.1} w {:.2} looks {:.0} bw {:.0} [{:?}]",
                mean(&o, |o| o.total()),
                mean(&o, |o| o.total()) / base,
                o[0].share(),
                o[0].worst(),
                o[0].worst_p99(),
                o[0].batch,
                o[0].writes,
                o[0].board_looks,
                o[0].board_writes,
                t.elapsed()
            );
        }
    }
}
