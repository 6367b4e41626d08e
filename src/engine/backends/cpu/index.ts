/** The cpu backend's door: opening it, asking whether it can run here, and the bandwidth probe. */
export { cpuBackendStatus, openCpuBackend, readBandwidth } from './cpu-backend.js';
export type { CpuBackendOptions, CpuBackendStatus } from './cpu-backend.js';
export type { ReadBandwidth } from './addon.js';
