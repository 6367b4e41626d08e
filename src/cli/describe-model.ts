/** What a command says about a model: how it will be computed, what it takes, what it is. */
import type { OpenedBackend } from '../engine/backends/open-backend.js';
import type { OpenedModel } from '../http/open-model.js';

export function backendLine({ backend, reason }: OpenedBackend): string {
  const threads = backend.threads === 1 ? '1 thread' : `${backend.threads} threads`;
  return `backend  ${backend.name} (${backend.isa}, ${threads}): ${reason}`;
}

export function modelLine({ served, folder }: OpenedModel): string {
  const { id, family, contextLength, build } = served;
  return `model    ${id} (${family}, ${build.activationLaw}, context ${contextLength}) from ${folder}`;
}

/** A command line that asks the server something, ready to be pasted. */
export function curlExample(url: string, modelId: string, question: string, withKey: boolean): string {
  const body = JSON.stringify({ model: modelId, messages: [{ role: 'user', content: question }] });
  return [
    `curl ${url}/v1/chat/completions \\`,
    `  -H 'content-type: application/json' \\`,
    ...(withKey ? [`  -H "authorization: Bearer $PLUMBLINE_API_KEY" \\`] : []),
    `  -d '${body.replaceAll("'", `'\\''`)}'`,
  ].join('\n');
}
