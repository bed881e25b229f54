// A client process for the tests: it reads one call a line, makes it with the official client of the OpenAI API, and writes what its
// user would see as one line.
import { createInterface } from "node:readline";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.LANEWAY_URL, apiKey: "none", maxRetries: 0, timeout: 60_000 });

async function call(c) {
  const seen = { text: "", chunks: 0, roles: 0 };
  const abort = new AbortController();
  const options = { headers: { "X-Request-Id": c.id }, signal: abort.signal };
  const chat = { model: c.model, messages: [{ role: "system", content: "be brief" }, { role: "user", content: [{ type: "text", text: "one two" }] }] };
  const limits = { user: "someone", ...c.params };
  if (c.cancel === "early") setTimeout(() => abort.abort(), 300);
  try {
    switch (c.op) {
      case "models": {
        const ids = [];
        for await (const m of client.models.list()) ids.push(m.id);
        seen.models = ids;
        seen.one = (await client.models.retrieve(ids[0])).id;
        break;
      }
      case "chat": {
        const r = await client.chat.completions.create({ ...chat, ...limits }, options);
        Object.assign(seen, { answer: r.id, text: r.choices[0].message.content, finish: r.choices[0].finish_reason, role: r.choices[0].message.role, tokens: r.usage.completion_tokens, prompt: r.usage.prompt_tokens });
        break;
      }
      case "completion": {
        const r = await client.completions.create({ model: c.model, prompt: "one two", ...limits }, options);
        Object.assign(seen, { answer: r.id, text: r.choices[0].text, finish: r.choices[0].finish_reason, tokens: r.usage.completion_tokens, prompt: r.usage.prompt_tokens });
        break;
      }
      case "chat stream":
      case "completion stream": {
        const over = { ...limits, stream: true, stream_options: { include_usage: true } };
        const stream = c.op === "chat stream"
          ? await client.chat.completions.create({ ...chat, ...over }, options)
          : await client.completions.create({ model: c.model, prompt: "one two", ...over }, options);
        for await (const chunk of stream) {
          seen.answer = chunk.id;
          if (chunk.usage) Object.assign(seen, { tokens: chunk.usage.completion_tokens, prompt: chunk.usage.prompt_tokens });
          const choice = chunk.choices[0];
          if (!choice) continue;
          if (choice.delta?.role) seen.role = choice.delta.role;
          const text = choice.delta ? choice.delta.content ?? "" : choice.text;
          if (text) {
            seen.text += text;
            if (++seen.chunks === 3 && c.cancel === "mid-stream") break; // the client aborts the request
          }
          if (choice.finish_reason) seen.finish = choice.finish_reason;
        }
        break;
      }
      default:
        throw new Error(`no such op: ${c.op}`);
    }
  } catch (e) {
    seen.error = { kind: e.constructor.name, status: e.status ?? 0, type: e.type ?? "", code: e.code ?? "", message: e.message };
  }
  return seen;
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await call(JSON.parse(line))));
}
