"""Expressions and rows with edge-case values, which tests/unit evaluates with deltalog and tests/interop compares with
Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.timezone.utc
NAN, INF = float("nan"), float("inf")
POINT = pa.struct([("x", pa.int32()), ("inner", pa.struct([("word", pa.string())]))])
_MOMENTS = [
    dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 2, 29, 12, 30, 15, 120),
    dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 11, 21, 10, 0, 0, 500_000),
    dt.datetime(1582, 10, 4, 1), dt.datetime(1900, 1, 7, 0, 0, 1), dt.datetime(2021, 1, 3), None,
]  # fmt: skip
_WORDS = ["", " ", "a", "ab", " ab ", "a%b_c", "AbC", "ä€😀x", "line\nbreak", "12", "\tab", None]
_REALS = [0.0, -0.0, 1.5, -1.5, NAN, INF, -INF, 1e300, 2.5, None]
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [0, 1, -1, 7, -8, None]),
    "small": (pa.int16(), [0, 3, -3, 300, -1, None]),
    "i": (pa.int32(), [0, 1, -1, 7, -7, 1000, None]),
    "j": (pa.int32(), [1, -1, 3, -3, 10, None]),
    "top": (pa.int32(), [2**31 - 1, -(2**31), 0, None]),
    "big": (pa.int64(), [0, 5, -5, 10**12, None]),
    "huge": (pa.int64(), [2**63 - 1, -(2**63), 0, 2**53 + 1, None]),
    "real": (pa.float32(), [0.0, -0.0, 0.1, NAN, INF, -INF, None]),
    "d": (pa.float64(), _REALS),
    "e": (pa.float64(), _REALS),
    "fine": (pa.float64(), [0.0, 1.9, -1.9, 2.5, -2.5, 1e9, None]),
    "money": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-12345678.99"), None]),
    "rate": (pa.decimal128(5, 1), [Decimal("0.0"), Decimal("1.5"), Decimal("-9999.9"), None]),
    "p": (pa.bool_(), [True, False, None]),
    "q": (pa.bool_(), [True, False, None]),
    "s": (pa.string(), _WORDS),
    "t": (pa.string(), _WORDS),
    "code": (pa.string(), ["", "abc", "ABC", "Zz9", None]),
    "digits": (pa.string(), ["0", "+7", "-12", " 42\n", "2147483647", None]),
    "iso": (pa.string(), ["2024-02-29", " 1970-01-01", "0001-01-01", None]),
    "raw": (pa.binary(), [b"", b"\x00\xff", b"abc", None]),
    "day": (pa.date32(), [None if m is None else m.date() for m in _MOMENTS]),
    "ts": (pa.timestamp("us", "UTC"), [None if m is None else m.replace(tzinfo=UTC) for m in _MOMENTS]),
    "wall": (pa.timestamp("us"), _MOMENTS),
    "point": (
        POINT,
        [{"x": 1, "inner": {"word": "w"}}, {"x": None, "inner": None}, {"x": 2, "inner": {"word": None}}, None],
    ),
    "items": (pa.list_(pa.int32()), [[1], [], None]),
    "more": (pa.list_(pa.int32()), [[3, 1], [7, None], [5, 5, 5], None]),
    "words": (pa.list_(pa.string()), [["a", "b"], ["ab", None, ""], [None], None]),
    "reals": (pa.list_(pa.float64()), [[0.0, NAN], [-0.0, 1.5], [INF, None], None]),
    "points": (pa.list_(POINT), [[{"x": 1, "inner": {"word": "w"}}], [None], [{"x": None, "inner": None}], None]),
    "tags": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], [("", 5)], [], None]),
    "codes": (pa.map_(pa.int64(), pa.string()), [[(1, "one")], [(5, None), (7, "seven")], None]),
    "number": (pa.string(), ["1.5", " -2e3 ", "+.5", "7.", "NaN", "inf", "-Infinity", "1e400", "3d", None]),
    "amount": (pa.string(), ["1.5", " -2.345 ", "+.5", "7.", "0", "-0.005", None]),
    "truth": (pa.string(), ["true", " F ", "Yes", "n", "1", "0", None]),
    "when_": (
        pa.string(),
        ["2024-02-29", " 2024-02-29 10:11", "1969-12-31T23:59:59.5Z", "2024-01-01 00:00:00.123456+02:00", None],
    ),
}  # fmt: skip


def edge_rows(number: int = 160) -> pa.Table:
    """Rows with many combinations of values in adjacent columns, in an order fixed by a seed."""
    chance = random.Random(7)
    columns = {}
    for name, (kind, values) in _VALUES.items():
        cells = list(itertools.islice(itertools.cycle(values), number))
        chance.shuffle(cells)
        columns[name] = pa.array(cells, kind)
    return pa.table(columns)


# Expressions that can be evaluated without an error on every row of the table that is defined above.
SUPPORTED = """
'it''s' | "it""s" | 'it' 's' | 'it''s' 'a' | s = 'it''s' | "it's" | X'61' | x'6' | raw = X'00FF' | X''
raw in (X'616263')
ts > date'2024-01-01' | ts <= date'1970-01-01' | ts between date'1970-01-01' and date'2024-12-31'
date'2000-01-01' < ts
money = '1.5' | money > '-1e3' | rate = '1.50' | d = '1.5' | d > 'NaN' | real < '0.1' | d <=> 'inf'
cast(number as double) | cast(number as float) | double(number) | cast(amount as decimal(5,2))
cast(amount as decimal(20,10)) | cast(amount as decimal(4,0)) | cast(truth as boolean) | boolean(i)
cast(d as boolean)
cast(money as int) | cast(rate as bigint) | cast(money as string) | cast(rate as string) | cast(s as binary)
cast(when_ as timestamp) | timestamp(when_) | to_timestamp(when_) | cast(ts as bigint) | cast(p as double)
cast(12L as timestamp) | cast(p as float) | cast(money as boolean)
if(size(items) > 0, items[0], 0) | more[0] | more[1L] | more[j - j] | points[0].x | points[0].inner.word | items[null]
if(size(more) > 2, more[2], null) | element_at(more, 1) | element_at(more, -1) | element_at(tags, 'a') | tags['a']
tags['nothing'] | tags[s] | codes[5] | codes[big] | codes[i] | size(items) | size(tags) | cardinality(more)
size(words)
get(more, 7) | get(more, i) | get(items, -1)
array_contains(more, 1) | array_contains(more, i) | array_contains(words, 'ab') | array_contains(words, s)
array_contains(reals, double('nan')) | array_contains(reals, 0D) | array_contains(items, 1L)
array_contains(reals, d)
map_contains_key(tags, 'a') | map_contains_key(codes, big) | map_keys(tags) | map_values(codes)
size(map_keys(codes))
named_struct('a', i, 'b', s).b | named_struct('a', i, 'b', s) | named_struct('x', point).x.inner.word | point['x']
s rlike 'a' | s rlike '^a' | s rlike 'b$' | s rlike 'e.b' | s rlike '^[a-c]+$' | s rlike 'a|x$'
s regexp '^ ?a{1,2}b?$'
not s rlike '[^ab]' | s rlike '(a|b)%' | code rlike '^[A-Z0-9a-z]*$' | regexp_like(s, 'A') | s rlike '' | s rlike '^$'
code ilike 'AB%' | code ilike '_b_' | code not ilike 'z%'
if(year(ts) between 2 and 9998, ts + interval 1 day, ts) | if(year(ts) between 2 and 9998, ts - interval 90 days, ts)
if(year(ts) between 2 and 9998, ts - interval '1 02:03:04.5' day to second, ts)
if(year(ts) between 2 and 9998, ts + interval 13 months, ts)
if(year(day) between 2 and 9998, day - interval 1 month, day)
if(year(day) between 2 and 9998, day + interval 1 week, day)
if(year(day) between 2 and 9998, day + interval 1 hour, ts)
if(year(day) between 2 and 9998, add_months(day, i), day)
if(year(wall) between 2 and 9998, wall - interval '1-1' year to month, wall)
if(year(day) between 2 and 9998, day + 1, day) | if(year(day) between 2 and 9998, day - j, day) | 1 + date'2024-02-28'
if(year(day) between 2 and 9998, interval 3 days + day, day) | add_months(date'2024-01-31', 1) | add_months(ts, 0)
ts < timestamp'2026-11-21 10:00:00Z' - interval 90 days | day < date'2026-11-21' - interval '90' day
day >= date'2024-03-01' - 1
ts - interval 1 day < timestamp'2024-01-01 00:00:00Z' | interval 1 day = interval 24 hours
interval 12 months = interval 1 year
timestamp'2026-11-21 10:00:00Z' - ts > interval 90 days | day - date'2020-01-01' > interval 1 day
ts - day < interval '1' hour
interval 1 day * 2 > interval 47 hours | interval 1 day + interval 1 hour < interval -2 days
- interval 1 day < interval 1 hour 5 minutes
if(year(ts) between 2 and 9998, ts + interval 1 day * tiny, ts) | interval 1.5 seconds > interval 900 milliseconds
interval '2' month < interval '1' year | date'2024-03-31' - interval 1 month | date'2023-11-30' + interval 3 months
i + j | i - j | i * j | i / 7 | i % j | i div j | -i | - 1 | tiny + small | tiny * 2 | tiny + tiny | i + big | big % j
small % 7S
tiny % 7S | pmod(i, j) | pmod(big, j) | pmod(tiny, 3Y) | mod(i, 3) | abs(i) | abs(d) | abs(money) | i + 1L | tiny + 1
fine + 1 | fine * 1.5 | fine - fine | real + real | real * 2 | real + d | d + e | d * e | d - e | d / 2 | fine / 0.5D
i / 2 | i + 1.5D | 1e3 + i
money + rate | money - rate | money * rate | money + 1 | money * 2 | i + rate | money + 1.5 | rate * i | 1.5 + 2.25
.5 | 1. | 0.10 | 3Y | 2S | 9L | 2.5F
-2147483648 | 2147483648 | 9223372036854775807 | 99999999999999999999 | -money | -d
floor(fine) | ceil(fine) | ceiling(i) | floor(tiny)
i = j | i <> j | i != j | i < j | i <= j | i > j | i >= j | i <=> j | i == j | i is not distinct from j
d = e | d < e | d <= e | d > e | d >= e | d <> e | d <=> e | real = d | real < d | real = 0.1 | d > 1.5 | huge = top
huge > d | huge = 9007199254740993
money > rate | money = 1.5 | money > i | rate <= big | money > 1.25 | tiny = 300 | top = 2147483647 | i > '5'
big in ('5', 6)
s = t | s < t | s >= t | raw = raw | s <=> t | p = q | p < q | p <=> q | p = true | p = 'true' | day = ts | day < wall
ts = wall | day >= '2000-01-01' | ts > '2020-06-01 12:00:00' | ts < '2000-01-01'
day = date'2024-02-29' | ts >= timestamp'1970-01-01 00:00:00' | ts > timestamp'2020-01-01 00:00:00+02:00'
wall < timestamp_ntz'2020-01-01 00:00:00' | ts = timestamp '2026-11-21 10:00:00.5'
p and q | p or q | not p | !p | not p or q and p | p and null | null or q | not null | p is true | p is not true
p is false | p is not false | !i = j | not i is null | not not p
i = 1.5 | i < 1.5 | big >= 2.5 | i in (1, 2.5) | tiny between 0.5 and 7.5 | i = '7' | huge = 9.007199254740993e15
money = 1.5e0 | d > 1e0 | d in (1, 2L) | real = 0.1F | real < 0.1D | wall > date'2000-01-01'
day < timestamp_ntz'2000-01-01 00:00:00'
startswith(s, 'a') | startswith(lower(code), 'a') | not startswith(code, 'a') | i <=> 1 | not (i <=> 1) | i <=> null
i is null | i is not null | point is null | point.x is null | items is not null | isnull(i) | isnotnull(d) | isnan(d)
isnan(real) | point.x | point.inner.word | POINT.X + 1 | `point`.`inner`.`word` = 'w'
i in (1, 7) | i in (1, null) | i not in (1, null) | s in ('a', '') | d in (1.5, 2)
day in ('2024-02-29', '1970-01-01') | i in (j, 7) | (i in (1, 2)) = p | (i < j) = p | i between -1 and 7
i not between j and 7 | s between 'a' and 'b' | d between 0 and 2
s like 'a%' | s like '%b%' | s like '_' | s like 'a.b' | s like '%' | s like '' | s like 'line%' | s not like 'a%'
not s like '%a' | s like '____' | s like '[a]%' | s like '%(%' or s like '^a'
case when i > 0 then 'pos' when i < 0 then 'neg' else 'zero' end | case when i > 0 then 1 end
case i when 1 then 'one' when 7 then 'seven' end | case when p then i else big end
case when p then money else rate end | case when p then 1 else null end
case when p then null else null end is null | if(p, i, 0) | if(i <> 0, 100 / i, 0)
case when i <> 0 then 100 div i end | i <> 0 and 100 / i > 1 | i = 0 or 100 / i > 1 | coalesce(i, j)
coalesce(i, j, 0) | coalesce(null, s, 'x') | nvl(i, 5) | ifnull(s, 'none') | nullif(i, j)
case when p then i else d end | case when p then real else i end | case when p then day else ts end
coalesce(day, '2000-01-01') | if(p, 1, 1.5)
extract(year from ts) | extract(week from day) | extract(doy from wall) | date_part('month', day) | position('b' in s)
substring(s from 2 for 1) | substring(s from -1) | extract(hour from ts) + 1 | extract(day from ts) in (1, 2)
cast(i as bigint) | cast(i as string) | cast(i as double) | cast(i as float) | cast(i as smallint)
cast(big as double) | cast(huge as double) | cast(huge as float) | cast(fine as int) | cast(fine as bigint)
cast(real as double) | cast(d as float) | cast(digits as int) | cast(digits as bigint) | int(digits)
cast(p as int) | cast(p as string) | cast(day as timestamp) | cast(ts as date) | cast(wall as date) | date(ts)
to_date(ts) | cast(ts as timestamp_ntz) | cast(wall as timestamp) | cast(iso as date) | cast('2020-01-02' as date)
cast('5' as int) | cast(null as int) | cast(i as decimal(12,2)) | cast(money as decimal(20,4))
cast(5 as decimal(3,1)) | cast('1.5' as decimal(5,2)) | ts::date | cast(1.5 as double) | string(i) | bigint(i)
double(i) | cast(money as double) | cast(rate as double) | cast(money as float) | cast(money * rate as double)
year(day) | year(ts) | month(wall) | day(day) | dayofmonth(ts) | hour(ts) | minute(wall) | second(ts) | quarter(day)
quarter(ts) | dayofweek(day) | dayofyear(ts) | weekofyear(day)
date_trunc('YEAR', ts) | date_trunc('quarter', ts) | date_trunc('month', ts) | date_trunc('WEEK', ts)
date_trunc('day', ts) | date_trunc('hour', ts) | date_trunc('minute', ts) | date_trunc('second', ts)
date_trunc('MILLISECOND', ts) | date_trunc('mm', day) | trunc(day, 'year') | trunc(day, 'MM') | trunc(day, 'week')
trunc(ts, 'quarter')
date_format(ts, 'yyyy-MM') | date_format(ts, 'yyyy-MM-dd') | date_format(ts, 'yyyyMMdd')
date_format(ts, 'yyyy-MM-dd HH:mm:ss') | date_format(day, 'yyyy/MM') | date_format(wall, 'HH:mm')
cast(day as string) | cast(ts as string) | cast(wall as string)
substring(s, 1, 2) | substring(s, 0, 2) | substring(s, -2, 1) | substring(s, -2, 5) | substring(s, -3, 2)
substring(s, -1) | substr(s, 2) | substring(s, 2, 0) | substring(s, 3, -1) | left(s, 2) | left(s, 0) | left(s, -1)
right(s, 2) | right(s, 0) | substring(s, -5, 2) | substring(s, -2, 2)
concat(s, t) | s || t | s || '-' || t | i + 1 || s | concat(s) | concat(i, '-', day) | 'a' || (i + 1) | 'n' || i * 2
concat(s, null) | upper(code) | lower(code) | ucase(code) | length(s) | len(s) | char_length(s) | length(raw)
trim(s) | ltrim(s) | rtrim(s) | "double" || 'single'
greatest(i, j) | least(i, big, 3) | greatest(d, e) | least(d, e, 0) | greatest(real, d) | greatest(s, t, code)
least(p, q) | greatest(day, ts) | greatest(money, rate) | least(money, 3) | greatest(i, null) | greatest(i, 1.5)
least(raw, raw) | greatest(wall, wall)
round(i) | round(i, -1) | round(big, -2) | round(tiny, 2) | round(fine) | round(d) | round(real) | round(d, 0)
round(money) | round(money, 1) | round(money, 5) | round(money, -1) | round(money, -9) | round(rate, 0)
round(1.25, 1)
bround(fine) | bround(d) | bround(money, 1) | bround(i, -1) | bround(2.5) | floor(money) | ceil(money) | ceil(rate)
sqrt(d) | sqrt(i) | sqrt(money) | sign(d) | signum(i) | sign(money) | sign(real) | nvl2(i, s, t) | nvl2(i, 1, 2.5)
lpad(s, 3) | lpad(s, 3, '*') | rpad(s, 3, '€') | rpad(s, 0) | lpad(s, -1, 'x') | rpad(code, 2) | repeat(s, 2)
repeat(s, 0) | repeat(s, -1) | reverse(s) | initcap(code) | initcap('tHE  qUICK-bROWN fox')
replace(s, 'a', 'xy') | replace(s, ' ') | replace(s, '', 'x') | replace(s, 'ab', 'b') | replace('aaa', 'aa', 'b')
instr(s, 'b') | locate('b', s) | instr(s, '€') | position('x', s) | endswith(s, 'b')
contains(s, 'b_') | contains(s, '') | endswith(s, '')
concat_ws('-', s, t) | concat_ws('-', i, day) | concat_ws(s, t, code) | concat_ws(',') | concat_ws(s)
concat_ws('', s, null) | datediff(day, date'2000-01-01') | datediff(ts, day) | date_diff(wall, ts)
datediff('2024-01-01', day)
last_day(day) | last_day(ts) | weekday(day) | weekday(ts) | if(year(day) between 2 and 9998, date_add(day, j), day)
if(year(day) between 2 and 9998, date_sub(day, 3S), day) | if(year(ts) between 2 and 9998, dateadd(ts, tiny), day)
date_add('2024-02-28', j) | date_sub(date'2024-03-01', 1) | unix_seconds(ts) | unix_millis(ts) | unix_micros(ts)
to_date(trim(iso), 'yyyy-MM-dd') | to_date(date_format(ts, 'yyyyMMdd'), 'yyyyMMdd') | to_date('05/2024', 'MM/yyyy')
to_timestamp(date_format(ts, 'dd.MM.yyyy HH:mm:ss'), 'dd.MM.yyyy HH:mm:ss') | to_timestamp('2024', 'yyyy')
to_timestamp(day) | to_timestamp(wall) | to_timestamp('2024-02-29 10:00:00.5') | to_date('2024-02-29')
1 | null = null | null <=> null | i = null | null < s | 'text' | true | false | 1 = 1 | 1 + 1 | date'2020-01-01'
null
"""

# Expressions that raise an error on some row, both in deltalog and in Spark.
FAILING = """
items[0] | items[5] | more[-1] | element_at(more, 9) | element_at(more, 0) | cast(s as double) | cast(s as boolean)
cast(s as decimal(3,1)) | cast('1000' as decimal(3,1)) | cast(s as timestamp) | money = 'x'
d > 'much' | i + 1 = items[i]
2147483647 + 1 | -2147483648 - 1 | 2147483647 * 2 | 9223372036854775807 + 1 | 100Y + 100Y | 1 / 0 | 1.0D / 0 | 1 % 0
1 div 0 | pmod(1, 0) | - (-2147483648) | abs(-2147483648) | -9223372036854775808L div -1L
cast(300 as tinyint) | cast(9999999999 as int) | cast(d as int) | cast('x' as int) | cast('1.5' as int)
cast('' as bigint) | cast(code as int) | cast(huge as int) | top + 1 | top * top | to_date('x', 'yyyy-MM-dd')
to_date('2024-02-30', 'yyyy-MM-dd') | to_timestamp('2024-01-01 24:00:00', 'yyyy-MM-dd HH:mm:ss') | round(2147483647, -1)
to_date(code, 'yyyyMMdd') | round(127Y, -1) | cast(99999 as decimal(3,1))
"""

# Unsupported expressions, each with a word from the error message.
REFUSED = {
    "soundex(s)": "soundex",
    "rand() > 0": "rand",
    "uuid()": "uuid",
    "interval 1 month 1 day": "months",
    "ts + interval 1 fortnight": "fortnight",
    "interval i days": "parsed",
    "'2024-01-31' + interval 1 day": "string",
    "s rlike t": "literal",
    "s rlike '(?=a)'": "?=",
    "s rlike 'a++'": "+",
    "s rlike '[a&&b]'": "&",
    "s rlike '('": "(",
    "s ilike 'ä'": "ASCII",
    "items['a']": "string",
    "items[1.0]": "decimal",
    "tags[1]": "integer",
    "array_contains(items, '1')": "string",
    "array_contains(items, null)": "void",
    "array_contains(points, point)": "struct",
    "i[0]": "integer",
    "point['nothing']": "nothing",
    "named_struct('a', 1, 'A', 2)": "same name",
    "named_struct(s, 1)": "literal",
    "x'6g'": "binary",
    "r'a'": "R'",
    "cast(items as array<int>)": "ARRAY",
    "cast(0.1D as decimal(3,1))": "double",
    '"S" = s': "`s`",
    's in ("a", "t")': "`t`",
    'point."x"': "`x`",
    "day + 1L": "long",
    "cast(1 as interval day)": "INTERVAL",
    "(1, 2) in ((1, 2))": "parentheses",
    "current_timestamp()": "current_timestamp",
    "current_date": "current_date",
    "nothing = 1": "nothing",
    "point.nothing = 1": "nothing",
    "i in (select 1)": "SELECT",
    "(select 1)": "SELECT",
    "exists(select 1)": "EXISTS",
    "sum(i)": "sum",
    "sum(i) over ()": "OVER",
    "s like 'a!%' escape '!'": "ESCAPE",
    "s = 'a\\\\n'": "backslash",
    "try_cast(s as int)": "TRY_CAST",
    "cast(s as varchar(3))": "VARCHAR",
    "cast(d as string)": "double",
    "cast(items as string)": "array",
    "items = items": "array",
    "s + 1": "string",
    "d % 2": "%",
    "money / 3": "/",
    "money % 2": "%",
    "money = d": "floating",
    "s = i": "string",
    "p and 1": "integer",
    "day = 'soon'": "soon",
    "date_format(ts, 'MMMM')": "MMMM",
    "date_format(ts, s)": "literal",
    "date_trunc(s, ts)": "literal",
    "date_trunc('century', ts)": "century",
    "substring(s, i, 1)": "literal",
    "upper(s, s)": "arguments",
    "round(d, 2)": "2 decimal places",
    "round(i, j)": "literal",
    "power(d, 2)": "power",
    "exp(d)": "exp",
    "log(d)": "log",
    "split(s, ',')": "split",
    "regexp_replace(s, 'a', 'b')": "regexp_replace",
    "lpad(s, 3, 'ab')": "2 characters",
    "replace(s, t, 'x')": "literal",
    "instr(s, t)": "literal",
    "instr(s, '')": "empty",
    "greatest(i)": "arguments",
    "greatest(s, i)": "string",
    "greatest(day, '2000-01-01')": "string",
    "greatest(items, items)": "array",
    "date_add(day, 1L)": "long",
    "datediff(s, day)": "string",
    "to_date(s, 'dd MMM yyyy')": "MMM",
    "to_date(s, 'HH:mm')": "HH:mm",
    "to_date(s, 'yyyy yyyy')": "yyyy",
    "sqrt(s)": "string",
    "upper(distinct s)": "DISTINCT",
    "i + ": "parsed",
    "i; j": "",
    "select 1": "SELECT",
    "i as k": "AS",
    "__import__('os').system('true')": "__import__",
    "~i": "~",
    "i & 1": "&",
    "s || i + 1": "string",
    "p = i < j": "parentheses",
    "p = i in (1)": "parentheses",
    "i is null is null": "parentheses",
    "p = not q": "parentheses",
    "if(null, 1, 2)": "void",
    "@x": "x",
    "?": "?",
    "cast(cast('99999999999999999999999999999999999999' as decimal(38,0)) as decimal(38,0)) * 10": "38",
}


def cases(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]
