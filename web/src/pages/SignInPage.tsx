import { type FormEvent, useState } from "react";
import { type ApiError, api } from "../api.ts";
import { Command, ErrorNote, useTitle } from "../ui/basics.tsx";
import { Dialog } from "../ui/Dialog.tsx";

export function SignInPage({ error }: { error?: ApiError }) {
  useTitle("Sign in");
  return (
    <main className="signin">
      <img src="/icon.svg" alt="" width="48" height="48" />
      <h1>K8s4r</h1>
      <p>
        Open the one-time link that <code>k8s4r up</code> prints, or paste a token for the API server. You have the
        permissions of the token.
      </p>
      <SignInForm error={error} />
    </main>
  );
}

/** SignInDialog asks to sign in again and leaves the page below as it is. */
export function SignInDialog({ close }: { close: () => void }) {
  return (
    <Dialog title="Sign in again" close={close}>
      <div className="signin again">
        <p>The session has ended. Sessions last an hour at most, or as long as their token.</p>
        <SignInForm />
        <button type="button" onClick={close}>
          Not now
        </button>
      </div>
    </Dialog>
  );
}

function SignInForm(props: { error?: ApiError }) {
  const [error, setError] = useState(props.error);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget).get("token") ?? "").trim();
    api.signIn({ token }).catch(setError);
  };
  return (
    <>
      <form onSubmit={submit}>
        <label className="field">
          Token
          <input name="token" type="password" autoComplete="off" required />
        </label>
        <ErrorNote error={error} />
        <button type="submit" className="primary">
          Sign in
        </button>
      </form>
      <p>Create a token that is valid for an hour:</p>
      <Command>kubectl create token default --duration 1h</Command>
    </>
  );
}
