// libp2p calls `Promise.withResolvers`, which Node has from version 22. Import this module before libp2p.

Promise.withResolvers ??= function withResolvers() {
  let resolve;
  let reject;
  const promise = new this((...functions) => {
    [resolve, reject] = functions;
  });
  return { promise, resolve, reject };
};
