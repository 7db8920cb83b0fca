// Verifies messages with the public library, as a receiver would: JSON lines {secret, headers, body (base64)} in; "verified TYPE" or the error out.
import { createInterface } from 'node:readline';
import { Webhook } from 'standardwebhooks';

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line);
  try {
    const message = new Webhook(secret).verify(Buffer.from(body, 'base64').toString('utf-8'), headers);
    console.log(`verified ${message.type}`);
  } catch (error) {
    console.log(`${error.constructor.name}: ${error.message}`);
  }
}
