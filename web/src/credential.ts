// The session of this tab, which each request sends in a header. sessionStorage belongs to one origin, port
// included; a cookie would be sent to all ports of the host. New tabs get the session from another tab.
const name = "k8s4r-session";

type Message = { session: string } | { wantedInsteadOf: string } | { signedOut: true };

/** sessionEvents sends "check" when the session may have ended, and "changed" when there is another one. */
export const sessionEvents = new EventTarget();
export const checkSession = () => sessionEvents.dispatchEvent(new Event("check"));

let tabs: BroadcastChannel | undefined;
const post = (message: Message) => tabs?.postMessage(message);
let wanted = false;

export const currentSession = () => sessionStorage.getItem(name) ?? "";

function replaceSession(session: string) {
  wanted = false;
  sessionStorage.setItem(name, session);
  sessionEvents.dispatchEvent(new Event("changed"));
}

/** keepSession uses a new session from now on, also in tabs that want one. */
export function keepSession(session: string) {
  replaceSession(session);
  post({ session });
}

/** wantSession asks the other tabs for a session and uses the first one that arrives. */
export function wantSession() {
  wanted = true;
  post({ wantedInsteadOf: currentSession() });
}

/** signOut forgets the session in all tabs, and what they show. */
export function signOut() {
  post({ signedOut: true });
  forget();
}

function forget() {
  sessionStorage.removeItem(name);
  location.reload();
}

function receive(message: Message) {
  const mine = currentSession();
  if ("signedOut" in message) forget();
  else if ("session" in message) wanted && message.session !== mine && replaceSession(message.session);
  // A tab whose own session has ended does not answer: two of them would exchange theirs without end.
  else if (mine && !wanted && message.wantedInsteadOf !== mine) post({ session: mine });
}

/** joinTabs exchanges sessions with the other tabs from now on. */
export function joinTabs() {
  tabs = new BroadcastChannel(name);
  tabs.onmessage = ({ data }: MessageEvent<Message>) => receive(data);
}

/** otherSessionThan resolves when the session of this tab is not, or no longer, the given one. */
export const otherSessionThan = (session: string) =>
  new Promise<void>((resolve) => {
    if (currentSession() !== session) resolve();
    else sessionEvents.addEventListener("changed", () => resolve(), { once: true });
  });
