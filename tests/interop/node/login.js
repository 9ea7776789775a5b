// Writes one record in a transaction and reads it back, by SASL_SSL, with kafkajs. Standard input is one JSON object.
// Exit code 3: the broker refused the login.
"use strict";

const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const EXIT_FAILED = 1;
const EXIT_REFUSED = 3;

function client(order) {
  const sasl =
    order.mechanism === "OAUTHBEARER"
      ? { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: order.token }) }
      : { mechanism: order.mechanism.toLowerCase(), username: order.user, password: order.password };
  const [host] = order.bootstrap.split(":");
  return new Kafka({
    brokers: [order.bootstrap],
    ssl: { ca: [fs.readFileSync(order.authority, "utf8")], host },
    sasl,
    logLevel: logLevel.NOTHING,
    retry: { retries: 5 },
  });
}

async function write(kafka, order) {
  const producer = kafka.producer({ transactionalId: order.topic, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  try {
    const transaction = await producer.transaction();
    await transaction.send({ topic: order.topic, messages: [{ value: order.value }] });
    await transaction.commit();
  } finally {
    await producer.disconnect();
  }
}

async function read(kafka, order) {
  const consumer = kafka.consumer({ groupId: order.topic, readUncommitted: false });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [order.topic], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer
        .run({ eachMessage: async ({ message }) => resolve(message.value.toString()) })
        .catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
}

function refused(error) {
  for (let one = error; one; one = one.cause || one.originalError) {
    if (one.name === "KafkaJSSASLAuthenticationError" || one.type === "SASL_AUTHENTICATION_FAILED") return true;
  }
  return false;
}

async function main() {
  const order = JSON.parse(fs.readFileSync(0, "utf8"));
  const kafka = client(order);
  await write(kafka, order);
  console.log(await read(kafka, order));
}

main().catch((error) => {
  console.error(error);
  process.exit(refused(error) ? EXIT_REFUSED : EXIT_FAILED);
});
