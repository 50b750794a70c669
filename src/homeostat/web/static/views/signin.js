// Who are you? A link signs in by itself; here a token does.
import { html, useState } from "../lib.js";
import { Command, Problem, useDoing } from "../parts.js";
import { signInByToken } from "../session.js";

export function SignIn({ problem }) {
  const [token, setToken] = useState("");
  const doing = useDoing();
  const submit = (event) => {
    event.preventDefault();
    doing.run(() => signInByToken(token.trim()));
  };
  return html`<main class="signin">
    <img src="/ui/icon.svg" alt="" width="56" height="56" />
    <h1>Homeostat</h1>
    <p>In a terminal, this prints a link that signs you in:</p>
    <p><${Command}>homeostat ui<//></p>
    <form onSubmit=${submit}>
      <label for="token">Or paste a token</label>
      <input id="token" type="password" autocomplete="off" required value=${token} onInput=${(event) => setToken(event.target.value)} />
      <button disabled=${doing.busy}>Sign in</button>
    </form>
    <p class="hint">Tokens are made with <code>homeostat token create --user NAME</code>.</p>
    <${Problem}>${doing.error || problem}<//>
  </main>`;
}
