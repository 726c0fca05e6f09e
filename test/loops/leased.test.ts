import * as Layer from "effect/Layer"
import { memoryTable } from "./memory-table.ts"
import { leasedLoopSuite } from "./suite.ts"

leasedLoopSuite("over jobs in memory", Layer.empty, memoryTable)
