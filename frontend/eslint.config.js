import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "dist"] },
  js.configs.recommended,
  ...tseslint.configs.strict,
  {
    rules: {
      "@typescript-eslint/no-explicit-any": "error",
      "max-lines": ["error", { max: 600 }],
      "max-lines-per-function": ["error", { max: 105, skipBlankLines: true, skipComments: true }],
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "Names come from strangers: text only." },
        { property: "outerHTML", message: "Names come from strangers: text only." },
        { property: "insertAdjacentHTML", message: "Names come from strangers: text only." },
      ],
      "no-restricted-syntax": [
        "error",
        {
          selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
          message: "Names come from strangers: text only.",
        },
      ],
    },
  },
  { files: ["src/schema.ts"], rules: { "max-lines": "off" } },
  { files: ["tests/**/*.ts"], rules: { "max-lines-per-function": "off" } },
  // Tables of cases.
  { files: ["tests/screens/cases*.ts"], rules: { "max-lines": "off" } },
);
