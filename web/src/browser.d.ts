/**
 * What the compiler's description of browsers lacks: Trusted Types (W3C), as far as it is used here. What a policy makes
 * is described as the string that it stands for, because that is what constructors are described to take.
 */
declare var trustedTypes:
  | {
      createPolicy(
        name: string,
        rules: { readonly createScriptURL: (url: string) => string }
      ): { createScriptURL(url: string): string }
    }
  | undefined
