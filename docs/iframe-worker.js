/* Search from the disk: browsers start no worker from a file: address, so that its script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data: structuredClone(data) });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        inside.importScripts = (...urls) =>
          urls.reduce(
            (before, one) =>
              before.then(
                () =>
                  new Promise((loaded) => {
                    const part = inside.document.createElement("script");
                    part.src = one;
                    part.onload = loaded;
                    inside.document.body.append(part);
                  }),
              ),
            Promise.resolve(),
          );
        script.src = url;
        script.onload = resolve;
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        this.frame.contentWindow.dispatchEvent(event);
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
