/** Where what tests make lies until they end. */
import * as fs from "node:fs"
import * as os from "node:os"

const memory = "/dev/shm"
const enoughBytes = 4 * 2 ** 30

/**
 * The folder that SVC_TEST_DIR names, or memory if there is room: every file of tests makes and removes a thousand files of
 * a database, and no test waits for a disk to write down what nobody will read. Killed processes leave there what they
 * leave on a disk; a machine that loses power takes it along.
 */
export const testFolder = (): string => {
  const chosen = process.env["SVC_TEST_DIR"]
  if (chosen !== undefined) return chosen
  try {
    const { bavail, bsize } = fs.statfsSync(memory)
    fs.accessSync(memory, fs.constants.W_OK)
    return bavail * bsize > enoughBytes ? memory : os.tmpdir()
  } catch {
    return os.tmpdir()
  }
}
