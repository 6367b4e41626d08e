/** The cpu backend's door: opening it, asking whether it can run here, and the probes of what the machine can do. */
export { cpuBackendStatus, fastCrc32, fastReader, multiplyRate, openCpuBackend, readBandwidth } from './cpu-backend.js';
export type { CpuBackendOptions, CpuBackendStatus } from './cpu-backend.js';
export type { ProbeRate } from './addon.js';
