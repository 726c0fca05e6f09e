/** What a node has heard of and not yet taken up: bounded, because of too much it reads everything. */

export interface Changes {
  readonly all: boolean
  readonly hosts: ReadonlySet<string>
  readonly sites: ReadonlySet<string>
  readonly certificates: ReadonlySet<string>
  /** The latest question; 0: none. */
  readonly question: bigint
}

const most = 5_000
const uid = /^[0-9a-f-]{36}$/

export const makeChanges = () => {
  let all = false
  let question = 0n
  let heard = { hosts: new Set<string>(), sites: new Set<string>(), certificates: new Set<string>() }

  const add = (names: Set<string>, name: string) => {
    if (names.size >= most) all = true
    else names.add(name)
  }
  return {
    everything: () => {
      all = true
    },
    /** A notification; undefined: some may have been missed. What nobody knows means nothing. */
    hear: (payload: string | undefined) => {
      if (payload === undefined) {
        all = true
        return
      }
      const [kind, name = ""] = payload.split(" ")
      if (kind === "host") add(heard.hosts, name)
      if (kind === "site" && uid.test(name)) add(heard.sites, name)
      if (kind === "certificate") add(heard.certificates, name)
      if (kind === "ask" && /^\d{1,18}$/.test(name) && BigInt(name) > question) question = BigInt(name)
    },
    isEmpty: () =>
      !all && question === 0n && heard.hosts.size + heard.sites.size + heard.certificates.size === 0,
    take: (): Changes => {
      const taken: Changes = { all, question, ...heard }
      all = false
      question = 0n
      heard = { hosts: new Set(), sites: new Set(), certificates: new Set() }
      return taken
    },
    /** They were not taken up after all: everything is read again. */
    giveBack: (changes: Changes) => {
      all = true
      if (changes.question > question) question = changes.question
    }
  }
}
export type HeardChanges = ReturnType<typeof makeChanges>
