"use strict";
/* Numbers as people write them; the same forms as in the tables of the page. */

const Words = (() => {
  const digits = value => Math.abs(value) < 1000 ? String(Number(value.toPrecision(4))) : value.toFixed(0);
  function scaled(value, units, last) {
    for (const [name, size] of units) if (Math.abs(value) >= size) return `${digits(value / size)} ${name}`;
    return `${Number(value.toPrecision(4))} ${last}`;
  }
  const TIMES = [["s", 1e12], ["ms", 1e9], ["us", 1e6], ["ns", 1e3], ["ps", 1]];
  const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const RATES = [["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]];
  return {
    exact: ps => { const [name, size] = TIMES.find(([, one]) => ps >= one) || TIMES[4]; return `${Number((ps / size).toPrecision(9))} ${name}`; },
    time: ps => ps === 0 ? "0 s" : scaled(ps, TIMES, "ps"),
    size: bytes => scaled(bytes, SIZES, "B"),
    rate: bytes => scaled(bytes, RATES, "B/s"),
    count: n => n.toLocaleString("en-US"),
    unit: window => TIMES.find(([, size]) => window >= 2 * size) || TIMES[TIMES.length - 1],
    plain: value => String(Number(value.toPrecision(12))),
  };
})();
