import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { parseToolCall } from './tool-call.js';

describe('tool call', () => {
  test('arguments keep the text that the model wrote', () => {
    const call = (text: string) => parseToolCall(text);
    assert.deepEqual(call('\n{"name": "f", "arguments": {"n": 1.0,  "big": 12345678901234567890, "u": "\\u00e9"}}\n'), {
      name: 'f',
      arguments: '{"n": 1.0,  "big": 12345678901234567890, "u": "\\u00e9"}',
    });
    assert.deepEqual(call('{"arguments":{},"name":"f"}'), { name: 'f', arguments: '{}' });
    assert.deepEqual(call('{"x": [{"arguments": 1}], "\\u0061rguments" : {"a": "}\\"]"} , "name": "f", "y": -1e5}'), {
      name: 'f',
      arguments: '{"a": "}\\"]"}',
    });
    assert.deepEqual(call('{"name": "f", "arguments": {"a": 1}, "arguments": {"b": 2}}'), {
      name: 'f',
      arguments: '{"b": 2}',
    });
  });

  test('arguments in a string are taken out of it; absent ones are an empty object', () => {
    assert.deepEqual(parseToolCall('{"name": "f", "arguments": "{\\"a\\": 1}"}'), { name: 'f', arguments: '{"a": 1}' });
    assert.deepEqual(parseToolCall('{"name": "f"}'), { name: 'f', arguments: '{}' });
  });

  test('what is no call is none', () => {
    const texts = [
      '',
      'null',
      '[]',
      '5',
      '{',
      '{}',
      '{"name": ""}',
      '{"name": 5}',
      '{"arguments": {}}',
      '{"name": "f", "arguments": []}',
    ];
    texts.push(
      '{"name": "f", "arguments": null}',
      '{"name": "f", "arguments": "no"}',
      '{"name": "f", "arguments": 1}',
      '{"name": "f"} x',
    );
    for (const text of texts) assert.equal(parseToolCall(text), undefined, text);
  });

  test('the text of the arguments spells the value that JSON.parse sees, in any surroundings', () => {
    const object = fc.dictionary(fc.string(), fc.jsonValue());
    const members = fc.tuple(
      fc.dictionary(fc.string(), fc.jsonValue()),
      object,
      fc.constantFrom(undefined, 1, '\t'),
      fc.boolean(),
    );
    fc.assert(
      fc.property(members, ([others, given, indent, last]) => {
        const { name: _name, arguments: _arguments, ...rest } = others;
        const call = last ? { ...rest, name: 'f', arguments: given } : { arguments: given, name: 'f', ...rest };
        const text = JSON.stringify(call, null, indent);
        const read = parseToolCall(text);
        assert.ok(read);
        assert.ok(text.includes(read.arguments));
        // Compared as text: JSON.stringify writes __proto__ and -0 as JSON.parse reads them.
        assert.equal(JSON.stringify(JSON.parse(read.arguments)), JSON.stringify(JSON.parse(JSON.stringify(given))));
      }),
    );
  });
});
