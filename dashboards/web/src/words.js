// Words that several scripts use.

/** "1 seed", "2,000 seeds". */
export const counted = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

/** Joins what is there: "rtol 0.001 · v1-…". */
export const words = (...parts) => parts.filter(Boolean).join(' · ');
