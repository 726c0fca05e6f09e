/** The style sheet of all pages. It is within each page, and the policy names its digest. */
export const style = `
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }
body { margin: 0; background: Canvas; color: CanvasText; overflow-wrap: anywhere }
[hidden] { display: none }
main { max-width: 26rem; margin: 8vh auto; padding: 0 1.25rem }
h1 { font-size: 1.5rem; line-height: 1.2 }
h2 { font-size: 1.1rem; margin-top: 2rem }
label { display: block; margin-top: 1rem; font-weight: 600 }
.hint { margin: 0; font-size: .875rem }
input { box-sizing: border-box; width: 100%; padding: .6rem; font: inherit; border: 1px solid #767676; border-radius: .35rem }
button, .button { display: inline-block; margin-top: 1rem; padding: .6rem 1rem; font: inherit; font-weight: 600; color: #fff; background: #0b57d0; border: 1px solid #0b57d0; border-radius: .35rem; text-decoration: none; cursor: pointer }
button.plain { color: inherit; background: transparent; border-color: #767676 }
:focus-visible { outline: 3px solid #0b57d0; outline-offset: 2px }
.problem { padding: .75rem 1rem; border: 2px solid #b3261e; border-radius: .35rem }
.problem p { margin: 0 }
ul { padding-left: 1.25rem }
li form { display: inline }
li button { margin: 0 0 0 .5rem; padding: .15rem .6rem }
main.wide { max-width: 36rem }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem }
fieldset { min-width: 0; margin: 1.5rem 0 0; padding: 0; border: 0 }
fieldset.danger { padding: .75rem 1rem 1rem; border: 2px solid #b3261e; border-radius: .35rem }
legend { padding: 0; font-size: 1.1rem; font-weight: 600 }
.danger legend { padding: 0 .35rem; margin-left: -.35rem; font-size: 1rem }
.choice { display: flex; gap: .65rem; align-items: baseline; margin-top: .5rem; padding: .35rem 0; font-weight: 400 }
.choice input { flex: none; width: 1.1rem; height: 1.1rem; margin: 0; position: relative; top: .15rem; accent-color: #0b57d0 }
.quiet, code { color: #595959; font-size: .875rem }
ul.lines { list-style: none; margin: 0; padding: 0 }
ul.lines > li { padding: .4rem 0; border-top: 1px solid #76767666 }
ul.lines li button { margin: .35rem 0 0 }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 0 }
.actions button { margin: 0; min-width: 8rem }
form.inline { display: inline }
button.link { margin: 0; padding: 0; font-weight: inherit; color: LinkText; background: none; border: 0; text-decoration: underline }
@media (prefers-color-scheme: dark) { a, button.link { color: #8ab4f8 } :focus-visible { outline-color: #8ab4f8 } .problem { border-color: #f28b82 } .quiet, code { color: #b3b3b3 } .choice input { accent-color: #8ab4f8 } fieldset.danger { border-color: #f28b82 } }
`
