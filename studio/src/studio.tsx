import { render } from "preact";
import { App } from "./components/app";

render(<App />, document.getElementById("studio")!);
