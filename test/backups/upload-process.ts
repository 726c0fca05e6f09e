/** Uploads of two parts that never end, one for each key, to be killed. */
import { CreateMultipartUploadCommand, S3Client, UploadPartCommand } from "@aws-sdk/client-s3"

const [endpoint = "", bucket = "", accessKeyId = "", secretAccessKey = "", ...keys] = process.argv.slice(2)
const client = new S3Client({
  endpoint,
  region: "us-east-1",
  forcePathStyle: true,
  credentials: { accessKeyId, secretAccessKey },
  requestChecksumCalculation: "WHEN_REQUIRED"
})
for (const Key of keys) {
  const { UploadId } = await client.send(new CreateMultipartUploadCommand({ Bucket: bucket, Key }))
  const part = { Bucket: bucket, Key, UploadId, PartNumber: 1, Body: Buffer.alloc(5 << 20, 1) }
  await client.send(new UploadPartCommand(part))
}
process.stdout.write("up\n")
setInterval(() => {}, 1000)
