// What vega-interpreter imports from vega-util: the bundle of vega, loaded before, has it.
export const { ascending, isString, DisallowedObjectProperties } = globalThis.vega;
