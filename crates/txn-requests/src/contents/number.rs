//! Sums of JSON numbers: exact for integers, as doubles otherwise.

use std::cmp::Ordering;

use serde_json::Number;

/// The sum. `None` if 64 bits or a double cannot hold it.
pub(crate) fn sum(a: &Number, b: &Number) -> Option<Number> {
    if let (Some(a), Some(b)) = (whole(a), whole(b)) {
        let sum = a.checked_add(b)?;
        let signed = i64::try_from(sum).ok().map(Number::from);
        return signed.or_else(|| u64::try_from(sum).ok().map(Number::from));
    }
    Number::from_f64(a.as_f64()? + b.as_f64()?)
}

/// The number with the other sign. `None` if it does not fit.
pub(crate) fn negated(number: &Number) -> Option<Number> {
    match whole(number) {
        Some(whole) => i64::try_from(whole.checked_neg()?).ok().map(Number::from),
        None => Number::from_f64(-number.as_f64()?),
    }
}

/// Compares two numbers: exactly if both are integers, otherwise as doubles.
pub(crate) fn compare(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // JSON has no numbers without an order, such as NaN.
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_numbers_are_added_exactly_or_not_at_all(a in any::<i64>(), b in any::<i64>()) {
            let exact = i128::from(a) + i128::from(b);
            let found = sum(&a.into(), &b.into());
            prop_assert_eq!(found.as_ref().and_then(whole), i64::try_from(exact).map(i128::from).ok()
                .or_else(|| u64::try_from(exact).map(i128::from).ok()));
            prop_assert_eq!(compare(&a.into(), &b.into()), a.cmp(&b));
        }

        #[test]
        fn addition_and_its_negation_cancel_out(a in -1_000_000_i64..1_000_000, b in any::<i32>()) {
            let (a, b) = (Number::from(a), Number::from(b));
            let back = sum(&sum(&a, &b).unwrap(), &negated(&b).unwrap()).unwrap();
            prop_assert_eq!(back, a);
        }

        #[test]
        fn doubles_add_as_doubles(a in -1e9_f64..1e9, b in any::<i32>()) {
            let found = sum(&Number::from_f64(a).unwrap(), &b.into()).unwrap();
            prop_assert_eq!(found.as_f64(), Some(a + f64::from(b)));
        }
    }

    #[test]
    fn numbers_at_the_ends_do_not_wrap() {
        let (max, min) = (Number::from(u64::MAX), Number::from(i64::MIN));
        assert_eq!(sum(&max, &1.into()), None);
        assert_eq!(sum(&min, &(-1).into()), None);
        assert_eq!(sum(&max, &min), Some((i64::MAX).into()));
        assert_eq!(negated(&min), None);
        assert_eq!(negated(&max), None);
        assert_eq!(
            sum(&Number::from_f64(f64::MAX).unwrap(), &Number::from_f64(f64::MAX).unwrap()),
            None
        );
        assert_eq!(compare(&max, &min), Ordering::Greater);
        assert_eq!(compare(&Number::from_f64(0.5).unwrap(), &1.into()), Ordering::Less);
    }
}
