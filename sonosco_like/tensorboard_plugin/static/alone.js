// The page without TensorBoard, which would call `render` itself.

import { render } from "./index.js";

render();
