#!/usr/bin/env bash
# diskcache's `memoize` gives the result of another call if an argument is None.
#
# Seen with `diskcache` 5.6.3 (PyPI). The key of a call is one flat tuple: the positional arguments,
# None as a separator, then each keyword argument's name and value. So these pairs of calls share a
# key, and the second call returns the result of the first:
#
#   | first call      | second call  | key of both, after the function's name |
#   |-----------------|--------------|-----------------------------------------|
#   | f(1, None, "x") | f(1, x=None) | (1, None, "x", None)                    |
#   | f(None, "a")    | f(a=None)    | (None, "a", None)                       |
#
# Without keyword arguments the separator ends the key: hence the last None. Nothing is raised.
#
# Needs python3 and a network. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check diskcache==5.6.3

cat >seen.py <<'PYTHON'
import diskcache

with diskcache.Cache("cache") as cache:

    @cache.memoize(name="f")
    def f(*values, **named):
        return f"{values} {named}"

    print(f.__cache_key__(1, None, "x"), f.__cache_key__(1, x=None))
    print(f(1, None, "x"), f(1, x=None))
    print(f.__cache_key__(None, "a"), f.__cache_key__(a=None))
    print(f(None, "a"), f(a=None))
PYTHON

seen=$(venv/bin/python seen.py)
printf '%s\n' "$seen"
[[ $seen == "('f', 1, None, 'x', None) ('f', 1, None, 'x', None)
(1, None, 'x') {} (1, None, 'x') {}
('f', None, 'a', None) ('f', None, 'a', None)
(None, 'a') {} (None, 'a') {}" ]]
echo "as described"
