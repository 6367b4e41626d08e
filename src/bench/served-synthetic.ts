/**
 * A synthetic model behind the real HTTP app on a loopback port, so that a server can be measured without a checkpoint.
 * Prompts are token ids; the answer has no text.
 */
import type { ServedModel } from '../api/served-model.js';
import { PlumblineError } from '../errors.js';
import { createApp } from '../http/app.js';
import { listen, type ListeningServer } from '../http/node-server.js';
import { packageVersion } from '../http/package-info.js';
import { createLog } from '../observe/log.js';
import { Telemetry } from '../observe/telemetry.js';
import type { BenchSession } from './session.js';
import { samplingRules } from '../sample/sampler.js';
import { SILENT } from './token-run.js';

const HOST = '127.0.0.1';

/** The model's name in requests. */
export const SYNTHETIC_ID = 'synthetic';

export async function serveSynthetic(session: BenchSession): Promise<ListeningServer> {
  const { scheduler } = session;
  const http = createApp({
    options: {
      listenHost: HOST,
      allowedHosts: [],
      corsOrigins: [],
      apiKey: undefined,
      maxBodyBytes: 1 << 20,
      keepAliveMs: 0,
      stallTimeoutMs: 0,
    },
    models: [servedModel(session)],
    telemetry: new Telemetry(createLog({ level: 'silent', json: true }), () => {
      const { running, queued } = scheduler.stats();
      return { running, waiting: queued };
    }),
    health: () => ({ version: packageVersion(), uptime_s: 0, models: [] }),
    brokenModels: () => (scheduler.stats().mode === 'broken' ? 1 : 0),
  });
  return listen(http, HOST, 0);
}

function servedModel({ synthetic: { model }, backend, scheduler }: BenchSession): ServedModel {
  return {
    id: SYNTHETIC_ID,
    family: model.family,
    createdAt: 0,
    vocabSize: model.vocabSize,
    contextLength: model.contextLength,
    defaultMaxTokens: undefined,
    timeoutMs: undefined,
    samplingRules: samplingRules(model.laws.sampler),
    stopTokenIds: [],
    build: { version: packageVersion(), backend: backend.name, activationLaw: model.activationLaw },
    encode: (text) => [...Buffer.from(text)].map((byte) => byte % model.vocabSize),
    tokenBytes: () => new Uint8Array(0),
    textSink: () => SILENT,
    chat: {
      prepare() {
        throw new PlumblineError('unsupported_parameter', 'a synthetic model has no chat format');
      },
    },
    submit: (request) => scheduler.submit(request),
  };
}
