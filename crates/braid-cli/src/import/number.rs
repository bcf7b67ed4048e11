//! Converts JSON numbers to canonical text without rounding: equal numbers get equal text.
//!
//! The text has plain decimal digits if that adds at most [`ZEROS_MAX`] zeros. Otherwise it is the
//! significant digits and a power of ten: `12e400`, `12e-400`.

const ZEROS_MAX: i64 = 40;

pub fn canonical_number(text: &str) -> Option<String> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    let digits = [whole, fraction].concat();
    let kept = digits.trim_end_matches('0');
    let point = i64::try_from(fraction.len()).ok()?;
    let dropped = i64::try_from(digits.len() - kept.len()).ok()?;
    let power = exponent.checked_sub(point)?.checked_add(dropped)?;
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() {
        return Some("0".to_owned());
    }
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{}", written(kept, power)?))
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn written(digits: &str, power: i64) -> Option<String> {
    let count = i64::try_from(digits.len()).ok()?;
    if power >= 0 {
        return Some(match usize::try_from(power) {
            Ok(zeros) if power <= ZEROS_MAX => format!("{digits}{}", "0".repeat(zeros)),
            _ => format!("{digits}e{power}"),
        });
    }
    let whole = count + power;
    if whole > 0 {
        let (whole, fraction) = digits.split_at_checked(usize::try_from(whole).ok()?)?;
        return Some(format!("{whole}.{fraction}"));
    }
    Some(match usize::try_from(-whole) {
        Ok(zeros) if -whole <= ZEROS_MAX => format!("0.{}{digits}", "0".repeat(zeros)),
        _ => format!("{digits}e{power}"),
    })
}

/// Returns the text in indexes of earlier versions: 64-bit integers exactly, other numbers rounded
/// to `f64`.
pub fn rounded_number(text: &str) -> String {
    if text != "-0" && (text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok()) {
        return text.to_owned();
    }
    let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
    number.map_or_else(|| text.to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_number_of_equal_values_is_equal() {
        for (texts, expected) in [
            (&["1.50", "1.5", "15e-1", "0.15e+1", "150E-2"][..], "1.5"),
            (&["0", "-0", "0.000", "0e9", "-0.0E-7"], "0"),
            (&["1000", "1e3", "1000.0"], "1000"),
            (&["-7", "-7.0", "-70e-1"], "-7"),
            (&["0.001", "1e-3"], "0.001"),
            (&["9007199254740993"], "9007199254740993"),
            (&["18446744073709551617", "18446744073709551617.00"], "18446744073709551617"),
            (&["1e400", "10e399", "0.1e401"], "1e400"),
            (&["12e-400", "1.2e-399"], "12e-400"),
        ] {
            for text in texts {
                assert_eq!(canonical_number(text).as_deref(), Some(expected), "{text}");
            }
        }
        for text in ["", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "NaN", " 1", "1 ", "1e9999999999999999999"] {
            assert_eq!(canonical_number(text), None, "{text}");
        }
    }

    #[test]
    fn rounded_number_matches_earlier_versions() {
        for (text, expected) in [
            ("1.50", "1.5"),
            ("100.0", "100.0"),
            ("7", "7"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("-0", "-0.0"),
            ("1e16", "1e+16"),
        ] {
            assert_eq!(rounded_number(text), expected, "{text}");
        }
    }
}
