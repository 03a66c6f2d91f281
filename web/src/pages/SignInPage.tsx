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
        <code>k8s4r up</code> prints a link that signs you in once. Or paste a token of the API server: what it may see
        and change there, it may here.
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
      <p>A token of your own for an hour:</p>
      <Command>kubectl create token default --duration 1h</Command>
    </main>
  );
}
