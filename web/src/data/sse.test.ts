import { expect, it } from "vitest";
import { readEvents, type ServerEvent } from "./sse.ts";

async function read(...parts: (string | Uint8Array)[]): Promise<ServerEvent[]> {
  const events: ServerEvent[] = [];
  const body = new ReadableStream<Uint8Array>({
    start(control) {
      for (const part of parts) control.enqueue(typeof part === "string" ? new TextEncoder().encode(part) : part);
      control.close();
    },
  });
  await readEvents(body, (event) => events.push(event));
  return events;
}

it("reads events that arrive in pieces", async () => {
  const text = 'id: a:1\nevent: change\ndata: {"name": "grün: 1"}\n\nid: a:2\nevent: resync\ndata: {}\n\n';
  const want = [
    { id: "a:1", event: "change", data: '{"name": "grün: 1"}' },
    { id: "a:2", event: "resync", data: "{}" },
  ];
  expect(await read(text)).toEqual(want);
  expect(await read(...[...new TextEncoder().encode(text)].map((byte) => Uint8Array.of(byte)))).toEqual(want);
});

it("takes the position of a comment, and no incomplete event", async () => {
  expect(await read(": ping\nid: a:3\n\n", "id: a:4\nevent: change\ndata: {")).toEqual([
    { id: "a:3", event: "", data: "" },
  ]);
});

it("fails when the connection breaks", async () => {
  const body = new ReadableStream<Uint8Array>({ start: (control) => control.error(new TypeError("network error")) });
  await expect(readEvents(body, () => {})).rejects.toThrow("network error");
});
