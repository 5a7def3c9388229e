import { render } from "../src/main";

render();
