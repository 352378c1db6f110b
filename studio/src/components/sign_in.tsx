// The form for the bearer token, which stays in the session storage of the tab.
import { useState } from "preact/hooks";
import { Button } from "./ui";

export function SignIn({ reason, onToken }: { reason: string; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  return (
    <main class="sign-in">
      <form
        class="card narrow"
        onSubmit={(event) => {
          event.preventDefault();
          onToken(token.trim());
        }}
      >
        <img src="icon.svg" alt="" width="40" height="40" />
        <h1>Sign in to the Studio</h1>
        <p class="muted">
          {reason === "invalid bearer token"
            ? "The server does not know this token. Check it and try again."
            : "This server needs a bearer token. It stays in this browser tab and ends with it."}
        </p>
        <label class="field">
          <span class="field-label">Bearer token</span>
          <input
            type="password"
            autocomplete="current-password"
            required
            autofocus
            value={token}
            aria-invalid={reason === "invalid bearer token"}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <Button kind="primary" type="submit">Sign in</Button>
      </form>
    </main>
  );
}
