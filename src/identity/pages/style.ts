/** The style sheet of all pages: the dashboard's look. It is within each page, and the policy names its digest. */
export const style = `
:root {
  color-scheme: light dark;
  --bg: light-dark(#fbfbfa, #0f1113);
  --panel: light-dark(#ffffff, #16191c);
  --line: light-dark(#e5e4e0, #2a3036);
  --ink: light-dark(#1b1c1e, #eceef0);
  --soft: light-dark(#5c5f64, #a3a9b0);
  --faint: light-dark(#6a6d72, #8d949c);
  --accent: light-dark(#2f5bea, #8aa4ff);
  --on-accent: light-dark(#ffffff, #0b1020);
  --bad: light-dark(#b82d26, #ff857d);
  --del: light-dark(#fdeceb, #321615);
  font: .9375rem/1.5 system-ui, "Segoe UI", Roboto, sans-serif;
}
body { margin: 0; background: var(--bg); color: var(--ink); overflow-wrap: anywhere }
[hidden] { display: none }
main { box-sizing: border-box; max-width: 26rem; margin: 9vh auto 4vh; padding: 1.75rem 2rem 2rem; background: var(--panel); border: 1px solid var(--line); border-radius: .75rem }
main.wide { max-width: 40rem }
@media (max-width: 30rem) { body { background: var(--panel) } main { margin: 0; padding: 1.5rem 1.25rem; border: 0 } }
h1 { margin: 0 0 1rem; font-size: 1.25rem; line-height: 1.3; letter-spacing: -.01em }
h2 { margin: 1.75rem 0 .5rem; font-size: .8125rem; color: var(--soft) }
h3 { margin: 1.25rem 0 .25rem; font-size: .9375rem }
p { margin: .75rem 0 }
a, button.link { color: var(--accent) }
label { display: block; margin: 1rem 0 .25rem; font-weight: 500 }
.hint { margin: 0 0 .35rem; font-size: .8125rem; color: var(--soft) }
.quiet, code { font-size: .8125rem; color: var(--soft) }
input { box-sizing: border-box; width: 100%; padding: .5rem .65rem; font: inherit; color: inherit; background: var(--bg); border: 1px solid var(--faint); border-radius: .375rem }
button, .button { display: inline-block; margin-top: 1rem; padding: .45rem .9rem; font: inherit; font-weight: 500; color: var(--on-accent); background: var(--accent); border: 1px solid transparent; border-radius: .375rem; text-decoration: none; cursor: pointer }
button.plain { color: var(--ink); background: var(--panel); border-color: var(--faint) }
button.link { margin: 0; padding: 0; font-weight: inherit; background: none; border: 0; text-decoration: underline }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
.problem { padding: .65rem .9rem; background: var(--del); border: 1px solid var(--bad); border-radius: .5rem }
.problem p { margin: 0 }
ul { padding-left: 1.25rem }
li form { display: inline }
li button { margin: 0 0 0 .5rem; padding: .15rem .6rem }
ul.lines { list-style: none; margin: 0; padding: 0 }
ul.lines > li { padding: .5rem 0; border-top: 1px solid var(--line) }
ul.lines li button { margin: .35rem 0 0 }
fieldset { min-width: 0; margin: 1.5rem 0 0; padding: 0; border: 0 }
legend { padding: 0; font-weight: 600 }
fieldset.danger { padding: .75rem 1rem 1rem; border: 1px solid var(--bad); border-radius: .5rem }
.danger legend { padding: 0 .35rem; margin-left: -.35rem }
.choice { display: flex; gap: .65rem; align-items: baseline; margin-top: .5rem; padding: .35rem 0; font-weight: 400 }
.choice input { flex: none; width: 1.05rem; height: 1.05rem; margin: 0; position: relative; top: .15rem; accent-color: var(--accent) }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 0 }
.actions button { margin: 0; min-width: 8rem }
form.inline { display: inline }
`
