import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeModel } from '../../test/support/fake-served-model.js';
import { openAiModelList } from './openai/models.js';
import { findModel } from './model-names.js';

const aliases = [
  { name: 'chat', thinking: false },
  { name: 'reasoner', thinking: true },
];
const first = fakeModel({ id: 'first', aliases });
const second = fakeModel({ id: 'second', aliases });
const plain = fakeModel({ id: 'plain' });

test('a model is found by its name, and by an alias that says whether it reasons', () => {
  const models = [plain, first];
  assert.equal(findModel('first', models).model, first);
  assert.equal(findModel('first', models).alias, undefined);
  for (const alias of aliases) {
    const found = findModel(alias.name, models);
    assert.deepEqual([found.model, found.alias], [first, alias]);
  }
});

test('a served name counts before an alias', () => {
  const own = fakeModel({ id: 'chat' });
  assert.equal(findModel('chat', [first, own]).model, own);
  assert.equal(findModel('reasoner', [first, own]).model, first);
  assert.deepEqual(
    openAiModelList([first, own]).data.map(({ id }) => id),
    ['first', 'chat', 'reasoner'],
  );
});

test('an alias of several models means none of them, and unknown names are told what is served', () => {
  const of = (id: string, models: Parameters<typeof findModel>[1]) => () => findModel(id, models);
  assert.throws(of('chat', [first, second]), {
    code: 'model_not_found',
    message: "the model 'chat' may be any of 'first', 'second'; name the one that is meant",
  });
  assert.throws(of('gone', [plain, first]), {
    code: 'model_not_found',
    message: "the model 'gone' is not served here; served: 'plain', 'first', 'chat', 'reasoner'",
  });
  assert.deepEqual(
    openAiModelList([first, second]).data.map(({ id }) => id),
    ['first', 'second'],
  );
});

test('aliases are listed with the model that they mean', () => {
  const { data } = openAiModelList([first]);
  assert.deepEqual(
    data.map(({ id, plumbline }) => [id, plumbline.alias_of, plumbline.thinking]),
    [
      ['first', undefined, undefined],
      ['chat', 'first', 'off'],
      ['reasoner', 'first', 'on'],
    ],
  );
});
