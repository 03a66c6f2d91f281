// Reads server-sent events from a response. EventSource cannot: it sends no headers.

/** ServerEvent is an event, or a new position only: then its name is empty. */
export type ServerEvent = { id: string; event: string; data: string };

/** readEvents calls each with every event until the stream ends, and throws if the connection breaks. */
export async function readEvents(body: ReadableStream<Uint8Array>, each: (event: ServerEvent) => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const part = await reader.read();
    if (part.done) return; // an event without its empty line is incomplete and will be sent again
    const blocks = (rest + decoder.decode(part.value, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) each(parseEvent(block));
  }
}

function parseEvent(block: string): ServerEvent {
  const event: ServerEvent = { id: "", event: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    const field = line.slice(0, at);
    if (field === "id" || field === "event" || field === "data") event[field] = line.slice(at + 2);
  }
  return event;
}
