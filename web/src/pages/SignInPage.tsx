import { type FormEvent, useState } from "react";
import { type ApiError, api } from "../api.ts";
import { Command, ErrorNote, useTitle } from "../ui/basics.tsx";

export function SignInPage({ done }: { done: () => void }) {
  const [error, setError] = useState<ApiError>();
  useTitle("Sign in");
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget).get("token") ?? "").trim();
    api.signIn(token).then(done, setError);
  };
  return (
    <main className="signin">
      <img src="/icon.svg" alt="" width="48" height="48" />
      <h1>K8s4r</h1>
      <p>
        Open the one-time link that <code>k8s4r up</code> prints, or paste a token for the API server. You have the
        permissions of the token.
      </p>
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
    </main>
  );
}
